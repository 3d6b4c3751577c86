//===- DType.cpp - Numbers of each element type ----------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/DType.h"
#include "runtime/kernels/KernelError.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace tbc;
using namespace tbc::kernels;

namespace {

/// `value` rounded to `significandBits` bits (ties to even). Exponents are in frexp's convention:
/// below `minExponent` numbers are subnormal, above `maxExponent` infinite.
double roundSignificand(double value, int significandBits, int minExponent, int maxExponent) {
  if (value == 0 || !std::isfinite(value))
    return value;
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  int exponent = int(bits >> 52 & 0x7ff) - 1022; // frexp's, unless the double is subnormal
  // Where the result is normal, adding just under half a unit to the bits rounds them. A carry
  // into the exponent is right, too. Weights of billions of elements are rounded here.
  if (exponent >= minExponent) {
    int dropped = 53 - significandBits;
    bits += (uint64_t(1) << (dropped - 1)) - 1 + (bits >> dropped & 1);
    bits = bits >> dropped << dropped;
    if (int(bits >> 52 & 0x7ff) - 1022 > maxExponent)
      return std::copysign(std::numeric_limits<double>::infinity(), value);
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  int ulpExponent = minExponent - significandBits;
  // Scaling by a power of two is exact here, so nearbyint does the one rounding (to nearest even).
  return std::ldexp(std::nearbyint(std::ldexp(value, -ulpExponent)), ulpExponent);
}

uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

} // namespace

std::optional<DType> tbc::kernels::parseStorableDType(std::string_view text) {
  std::optional<DType> dtype = parseDType(text);
  return dtype && isStorable(*dtype) ? dtype : std::nullopt;
}

double tbc::kernels::roundTo(DType dtype, double value) {
  switch (dtype) {
  case DType::F64:
    return value;
  case DType::F32:
    return double(float(value));
  case DType::BF16:
    return roundSignificand(value, 8, -125, 128);
  case DType::F16:
    return roundSignificand(value, 11, -13, 16);
  case DType::F8E4M3:
  case DType::F8E5M2:
  case DType::I64:
  case DType::I32:
  case DType::I16:
  case DType::I8:
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::Bool:
    break;
  }
  throw KernelError("kernels do not round to " + std::string(name(dtype)));
}

int64_t tbc::kernels::wrapTo(DType dtype, int64_t value) {
  switch (dtype) {
  case DType::I64:
    return value;
  case DType::I32:
    return int32_t(value);
  case DType::I16:
    return int16_t(value);
  case DType::I8:
    return int8_t(value);
  case DType::U8:
    return uint8_t(value);
  case DType::U16:
    return uint16_t(value);
  case DType::U32:
    return uint32_t(value);
  case DType::Bool:
    return value != 0;
  case DType::F64:
  case DType::F32:
  case DType::BF16:
  case DType::F16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    break;
  }
  throw KernelError("kernels do not wrap integers to " + std::string(name(dtype)));
}

uint16_t tbc::kernels::encodeBF16(float value) {
  uint32_t bits = bitsOf(value);
  if (std::isnan(value))
    return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float tbc::kernels::decodeBF16(uint16_t bits) { return floatOf(uint32_t(bits) << 16); }

uint16_t tbc::kernels::encodeF16(float value) {
  uint16_t sign = uint16_t((bitsOf(value) >> 16) & 0x8000);
  if (std::isnan(value))
    return sign | 0x7e00;
  double magnitude = std::fabs(roundTo(DType::F16, value));
  if (std::isinf(magnitude))
    return sign | 0x7c00;
  if (magnitude < 0x1p-14) // zero or subnormal: a multiple of 2^-24
    return sign | uint16_t(magnitude * 0x1p24);
  int exponent;
  double significand = std::frexp(magnitude, &exponent); // in [0.5, 1)
  return sign | uint16_t((exponent + 14) << 10) | uint16_t(significand * 2048 - 1024);
}

float tbc::kernels::decodeF16(uint16_t bits) {
  int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  double magnitude = exponent == 0    ? fraction * 0x1p-24
                     : exponent == 31 ? (fraction ? std::numeric_limits<double>::quiet_NaN()
                                                  : std::numeric_limits<double>::infinity())
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return float(bits & 0x8000 ? -magnitude : magnitude);
}
