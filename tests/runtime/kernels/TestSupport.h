//===- TestSupport.h - Calling kernels and comparing tensors ---------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_KERNELS_TESTSUPPORT_H
#define TBC_TESTS_RUNTIME_KERNELS_TESTSUPPORT_H

#include "runtime/kernels/Kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tbc::kernels {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

inline const std::vector<Arith> allAriths = {Arith::Native, Arith::F64, Arith::Residue61,
                                             Arith::Residue251};

inline const char *nameOf(Arith arith) {
  static const char *const names[] = {"Native", "F64", "Residue61", "Residue251"};
  return names[int(arith)];
}

/// Returns all results of the kernel `op`.
inline std::vector<Tensor> runAll(Arith arith, const std::string &op, const Attrs &attrs,
                                  const std::vector<Tensor> &inputs,
                                  const std::vector<TensorType> &types) {
  KernelFn kernel = findKernel(op);
  require(kernel, [&] { return "no kernel " + op; });
  return kernel({arith}, attrs, inputs, types);
}

/// Returns the only result of the kernel `op`.
inline Tensor run(Arith arith, const std::string &op, const Attrs &attrs,
                  const std::vector<Tensor> &inputs, const TensorType &type) {
  return runAll(arith, op, attrs, inputs, {type})[0];
}

inline Tensor floats(Arith arith, Shape shape, const Doubles &values, DType dtype = DType::F32) {
  return Tensor::fromDoubles({dtype, std::move(shape)}, arith, values);
}

inline Tensor ints(Shape shape, const Ints &values, DType dtype = DType::I64) {
  return Tensor::fromInts({dtype, std::move(shape)}, values);
}

/// Returns multiples of 2^-12 in [low, high). Float types with 24 significant bits hold them
/// exactly.
inline Doubles randomValues(int64_t count, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 generator(seed);
  Doubles values(count);
  for (double &value : values)
    value = low + std::floor((generator() / 4294967296.0) * (high - low) * 4096) / 4096;
  return values;
}

inline Tensor randomTensor(Arith arith, Shape shape, unsigned seed, double low = -1,
                           double high = 1, DType dtype = DType::F32) {
  Doubles values = randomValues(numElements(shape), seed, low, high);
  return floats(arith, std::move(shape), values, dtype);
}

inline double largestDifference(const Tensor &a, const Tensor &b) {
  Doubles x = a.toDoubles(), y = b.toDoubles();
  require(a.shape() == b.shape(), "shapes differ");
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i)
    largest = std::max(largest, std::isnan(x[i] - y[i]) ? INFINITY : std::fabs(x[i] - y[i]));
  return largest;
}

/// Expects bit equality in both residue arithmetics, a tolerance of 1e-12 in F64, 1e-5 in Native.
inline void expectSame(Arith arith, const Tensor &actual, const Tensor &expected,
                       const std::string &what) {
  SCOPED_TRACE(what + " in " + nameOf(arith));
  if (isModular(arith))
    EXPECT_TRUE(bitwiseEqual(actual, expected));
  else
    EXPECT_LE(largestDifference(actual, expected), arith == Arith::F64 ? 1e-12 : 1e-5);
}

/// Expects small exact values, in any arithmetic.
inline void expectValues(Arith arith, const Tensor &actual, const Doubles &expected) {
  SCOPED_TRACE(nameOf(arith));
  EXPECT_TRUE(bitwiseEqual(actual, Tensor::fromDoubles(actual.type(), arith, expected)))
      << ::testing::PrintToString(actual.toDoubles());
}

} // namespace tbc::kernels

#endif // TBC_TESTS_RUNTIME_KERNELS_TESTSUPPORT_H
