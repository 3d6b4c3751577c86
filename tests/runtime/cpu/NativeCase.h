//===- NativeCase.h - Compares a native kernel with its reference ------------===//
//
// Part of tbc. The reference is the op's reference kernel in f64, on the same operands.
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

/// Returns the results of the native kernel. Fails the test if the kernel is missing, writes beyond
/// a result, or gives other bits with another number of threads.
std::vector<kernels::Tensor> runNative(const NativeCase &testCase);

/// Returns the exact results, by the reference kernel in f64.
std::vector<kernels::Tensor> runExact(const NativeCase &testCase);

/// Returns the same operands with all floats made positive. Rounding bounds are computed from them.
NativeCase withMagnitudes(NativeCase testCase);

/// Returns the largest relative error of one rounding: 2^-24 for f32, 2^-8 for bf16.
double unitRoundoff(kernels::DType dtype);

/// Expects |actual - exact| <= slack * magnitude + one rounding to the dtype of `actual`, for each
/// element. `magnitude` may be a scalar. Example: f32, slack 2^-22, magnitude 1, exact 0.5 allows
/// an error of 2^-22 + 2^-25.
void expectClose(const kernels::Tensor &actual, const kernels::Tensor &exact,
                 const kernels::Tensor &magnitude, double slack, const std::string &what);

/// Returns random floats in [low, high), rounded to the dtype.
kernels::Tensor randomFloats(const kernels::TensorType &type, unsigned seed, double low = -1,
                             double high = 1);
/// Returns random integers in [low, high).
kernels::Tensor randomInts(const kernels::TensorType &type, unsigned seed, int64_t low,
                           int64_t high);

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CPU_NATIVECASE_H
