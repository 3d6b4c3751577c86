//===- DType.h - Numbers of each element type ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_DTYPE_H
#define TBC_RUNTIME_KERNELS_DTYPE_H

#include "runtime/dtype/DType.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tbc::kernels {

using tbc::byteWidth;
using tbc::DType;
using tbc::isFloat;
using tbc::isStorable;
using tbc::name;

/// Returns the storable dtype of that name; nullopt for other texts. Example: "f32", not "f8e4m3".
std::optional<DType> parseStorableDType(std::string_view text);

/// Returns the nearest value in `dtype`, a float type. Ties go to the even significand, overflow to
/// infinity. A double is rounded once, not through f32. Example: 257 in bf16 is 256.
double roundTo(DType dtype, double value);

/// The low bits of `value` read as `dtype` (an integer type or Bool), in two's complement. Bool is
/// 0 for 0, otherwise 1. Example: 200 as I8 is -56.
int64_t wrapTo(DType dtype, int64_t value);

/// The 16-bit patterns of bf16 and f16, rounding to nearest even, and their exact values.
uint16_t encodeBF16(float value);
float decodeBF16(uint16_t bits);
uint16_t encodeF16(float value);
float decodeF16(uint16_t bits);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_DTYPE_H
