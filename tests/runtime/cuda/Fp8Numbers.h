//===- Fp8Numbers.h - The values of fp8 codes -------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FP8NUMBERS_H
#define TBC_TESTS_RUNTIME_CUDA_FP8NUMBERS_H

#include "runtime/abi/Fp8Kernels.h"

#include <cmath>
#include <limits>

namespace tbc::test {

/// Decodes sign, exponent and mantissa. e4m3 has no infinity, and its only NaN is all ones.
/// Example: 0x38 in e4m3 is 1. Source: "OCP 8-bit Floating Point Specification".
inline double numberOf(uint8_t code, program::fp8::Format format) {
  bool isE4M3 = format == program::fp8::Format::E4M3;
  int mantissaBits = isE4M3 ? 3 : 2, bias = isE4M3 ? 7 : 15;
  int exponent = (code & 0x7f) >> mantissaBits, mantissa = code & ((1 << mantissaBits) - 1);
  double sign = code & 0x80 ? -1 : 1;
  if (isE4M3 ? (code & 0x7f) == 0x7f : exponent == 31 && mantissa != 0)
    return std::numeric_limits<double>::quiet_NaN();
  if (!isE4M3 && exponent == 31)
    return sign * std::numeric_limits<double>::infinity();
  double fraction = std::ldexp(mantissa, -mantissaBits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1 + fraction, exponent - bias);
}

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FP8NUMBERS_H
