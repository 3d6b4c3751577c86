//===- Formats.cpp - Floats of up to 16 bits, and their rounding -----------===//

#include "tests/ptx/Formats.h"

#include <cstring>

namespace tbc::ptx {

uint32_t encode(double value, const Format &format, Rounding rounding, bool saturates) {
  const int bias = (1 << (format.exponentBits - 1)) - 1;
  const uint32_t sign = std::signbit(value) ? 1U << (format.exponentBits + format.fractionBits) : 0;
  const uint32_t allOnes = (1U << format.exponentBits) - 1;
  const uint32_t infinity = allOnes << format.fractionBits;
  const uint32_t largest =
      format.hasInfinity ? infinity - 1 : (infinity | ((1U << format.fractionBits) - 1)) - 1;
  if (std::isnan(value))
    return format.hasInfinity ? infinity | ((1U << format.fractionBits) - 1)
                              : (1U << (format.exponentBits + format.fractionBits)) - 1;
  if (std::isinf(value)) {
    if (format.hasInfinity && !saturates)
      return sign | infinity;
    return sign | largest;
  }
  double magnitude = std::fabs(value);
  if (magnitude == 0)
    return sign;
  int exponent = std::ilogb(magnitude);
  const int lowest = 1 - bias;
  int scale = (exponent < lowest ? lowest : exponent) - format.fractionBits;
  double units = std::ldexp(magnitude, -scale); // exact: fewer than 54 bits
  double whole = std::floor(units), rest = units - whole;
  bool isUp = false;
  switch (rounding) {
  case Rounding::Nearest:
    isUp = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0);
    break;
  case Rounding::NearestAway:
    isUp = rest >= 0.5;
    break;
  case Rounding::Zero:
    break;
  case Rounding::Down:
    isUp = rest > 0 && sign;
    break;
  case Rounding::Up:
    isUp = rest > 0 && !sign;
    break;
  }
  whole += isUp;
  // In units of 2^scale, at most 2^(fractionBits + 1) of them. The pattern is monotonic in them.
  auto pattern = uint64_t(whole);
  if (exponent >= lowest)
    pattern += uint64_t(exponent - lowest) << format.fractionBits;
  if (pattern > largest) {
    bool isInfinite = format.hasInfinity && !saturates &&
                      (rounding == Rounding::Nearest || rounding == Rounding::NearestAway || isUp);
    return sign | (isInfinite ? infinity : largest);
  }
  return sign | uint32_t(pattern);
}

double decode(uint32_t pattern, const Format &format) {
  const int bias = (1 << (format.exponentBits - 1)) - 1;
  uint32_t fraction = pattern & ((1U << format.fractionBits) - 1);
  uint32_t exponent = pattern >> format.fractionBits & ((1U << format.exponentBits) - 1);
  bool isNegative = pattern >> (format.exponentBits + format.fractionBits) & 1;
  double value = 0;
  uint32_t allOnes = (1U << format.exponentBits) - 1;
  uint32_t allFraction = (1U << format.fractionBits) - 1;
  if (exponent == allOnes && (format.hasInfinity || fraction == allFraction))
    value = fraction || !format.hasInfinity ? NAN : INFINITY;
  else if (exponent == 0)
    value = std::ldexp(double(fraction), 1 - bias - format.fractionBits);
  else
    value = std::ldexp(double(fraction + (1U << format.fractionBits)),
                       int(exponent) - bias - format.fractionBits);
  return isNegative ? -value : value;
}

double fusedToOdd(double a, double b, double c) {
  double sum = std::fma(a, b, c);
  if (!std::isfinite(sum) || sum == 0)
    return sum;
  // The error of the sum is exact if the product is exact, as for two floats of 24 bits.
  double product = a * b, part = sum - product;
  double error = (product - (sum - part)) + (c - part);
  if (error == 0)
    return sum;
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  if (bits & 1)
    return sum;
  bool isAway = (error > 0) == (sum > 0);
  bits += isAway ? 1 : uint64_t(-1);
  std::memcpy(&sum, &bits, sizeof bits);
  return sum;
}

} // namespace tbc::ptx
