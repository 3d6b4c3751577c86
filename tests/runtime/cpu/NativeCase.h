//===- NativeCase.h - A native kernel beside its reference -------------------===//
//
// Part of tbc. The reference is the op's reference kernel in f64, from the same operands.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CPU_NATIVECASE_H
#define TBC_TESTS_RUNTIME_CPU_NATIVECASE_H

#include "runtime/cpu/NativeKernel.h"
#include "runtime/kernels/Kernel.h"

#include <gtest/gtest.h>

#include <cmath>

#include <map>
#include <string>
#include <utility>

namespace tbc::test {

struct NativeCase {
  std::string op;
  kernels::Attrs attrs;
  /// In Native arithmetic.
  std::vector<kernels::Tensor> operands;
  cpu::Types results;

  cpu::Types operandTypes() const;
};

/// The results of the native kernel. Fails the test if there is none, if another number of threads
/// gives other bits, or if it writes beyond a result.
std::vector<kernels::Tensor> runNative(const NativeCase &testCase);

/// The exact results: those of the reference kernel in f64.
std::vector<kernels::Tensor> runExact(const NativeCase &testCase);

/// The same operands, all floats made positive: what bounds of rounding are taken from.
NativeCase withMagnitudes(NativeCase testCase);

/// 2^-24 for f32, 2^-8 for bf16: the largest relative error of one rounding.
double unitRoundoff(kernels::DType dtype);

/// |actual - exact| <= slack * magnitude + one rounding to the dtype of `actual`, element by
/// element; `magnitude` may be a scalar.
void expectClose(const kernels::Tensor &actual, const kernels::Tensor &exact,
                 const kernels::Tensor &magnitude, double slack, const std::string &what);

/// Random floats in [low, high) that the dtype holds.
kernels::Tensor randomFloats(const kernels::TensorType &type, unsigned seed, double low = -1,
                             double high = 1);
/// Random integers in [low, high).
kernels::Tensor randomInts(const kernels::TensorType &type, unsigned seed, int64_t low,
                           int64_t high);

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CPU_NATIVECASE_H
