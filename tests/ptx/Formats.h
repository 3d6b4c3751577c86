//===- Formats.h - Floats of 16 bits and fewer, and their rounding ---------===//

#ifndef TBC_TESTS_PTX_FORMATS_H
#define TBC_TESTS_PTX_FORMATS_H

#include <cmath>
#include <cstdint>

namespace tbc::ptx {

/// .rn, .rz, .rm (down), .rp (up), .rna (nearest, ties away from zero).
enum class Rounding : uint8_t { Nearest, Zero, Down, Up, NearestAway };

/// A binary format: 1 sign bit, then the exponent, then the fraction.
struct Format {
  int exponentBits, fractionBits;
  bool hasInfinity = true; // e4m3 has none, and one pattern that is no number
};
inline constexpr Format halfFormat{5, 10}, brainFormat{8, 7}, tf32Format{8, 10}, floatFormat{8, 23},
    e4m3Format{4, 3, false}, e5m2Format{5, 2};

/// The pattern of `value`, which is exact, rounded. `saturates`: what is too large becomes the
/// largest finite number instead of infinity. What is no number becomes the format's positive
/// quiet pattern. Example: 1.0009765625 in bf16, Nearest, is 0x3f80.
uint32_t encode(double value, const Format &format, Rounding rounding, bool saturates = false);

/// The value of a pattern.
double decode(uint32_t pattern, const Format &format);

/// a b + c, rounded to odd, so that rounding it again to fewer bits is right.
double fusedToOdd(double a, double b, double c);

template <const Format *format> struct Small {
  uint16_t pattern;
  Small() = default;
  explicit Small(double value) : pattern(uint16_t(encode(value, *format, Rounding::Nearest))) {}
  explicit operator double() const { return decode(pattern, *format); }
};
using Half = Small<&halfFormat>;
using Brain = Small<&brainFormat>;

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_FORMATS_H
