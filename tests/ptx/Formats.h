//===- Formats.h - Floats of up to 16 bits, and their rounding -------------===//

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
  bool hasInfinity = true; // e4m3 has no infinity and one NaN pattern
};
inline constexpr Format halfFormat{5, 10}, brainFormat{8, 7}, tf32Format{8, 10}, floatFormat{8, 23},
    e4m3Format{4, 3, false}, e5m2Format{5, 2};

/// Returns the pattern of the exact number `value`, rounded. With `saturates`, numbers out of range
/// become the largest finite number instead of infinity. NaN becomes the positive quiet NaN.
/// Example: 1.0009765625 in bf16, Nearest, is 0x3f80.
uint32_t encode(double value, const Format &format, Rounding rounding, bool saturates = false);

/// Returns the value of a pattern. Example: 0x3f80 in bf16 is 1.
double decode(uint32_t pattern, const Format &format);

/// Returns a b + c rounded to odd, so that a second rounding to fewer bits is correct.
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
