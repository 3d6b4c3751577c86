//===- Residue251.h - Arithmetic modulo 251 ---------------------------------===//
//
// Part of tbc. Plain C++.
//
// The small sister of Residue.h: numbers 0 .. 250, exact in every float type. A program computes
// with them in the memory and messages of its real run, byte for byte (docs/design.md, section 4).
// One value in 251 is 0 by chance, so a formula must depend on no more than inv(0) = 0.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_RESIDUE251_H
#define TBC_RUNTIME_KERNELS_RESIDUE251_H

#include "runtime/kernels/Residue.h"

#include <cstdint>

namespace tbc::kernels {

/// An element of Z/251 in its canonical form, 0 <= v < 251.
struct Residue251 {
  static constexpr uint32_t modulus = 251;

  uint8_t v = 0;

  Residue251() = default;
  /// `v` must be canonical.
  explicit constexpr Residue251(uint8_t v) : v(v) {}

  /// n mod 251.
  static Residue251 fromInt(int64_t n) {
    int64_t remainder = n % int64_t(modulus);
    return Residue251(uint8_t(remainder < 0 ? remainder + int64_t(modulus) : remainder));
  }

  /// The exact value m * 2^e of `x`, modulo 251. Example: 0.5 is 126, because 2 * 126 = 1 mod 251.
  /// Infinities are the ends of the order (orderKey). Throws KernelError for NaN.
  static Residue251 fromDouble(double x);

  static Residue251 reduce(uint64_t v) { return Residue251(uint8_t(v % modulus)); }

  /// The integer congruent to this one in [-125, 125].
  int64_t centered() const { return v > modulus / 2 ? int64_t(v) - int64_t(modulus) : int64_t(v); }
};

inline Residue251 operator+(Residue251 a, Residue251 b) {
  return Residue251::reduce(uint32_t(a.v) + b.v);
}
inline Residue251 operator-(Residue251 a) {
  return Residue251::reduce(Residue251::modulus - uint32_t(a.v));
}
inline Residue251 operator-(Residue251 a, Residue251 b) { return a + -b; }
inline Residue251 operator*(Residue251 a, Residue251 b) {
  return Residue251::reduce(uint32_t(a.v) * b.v);
}
inline bool operator==(Residue251 a, Residue251 b) { return a.v == b.v; }
inline bool operator!=(Residue251 a, Residue251 b) { return a.v != b.v; }
inline Residue251 &operator+=(Residue251 &a, Residue251 b) { return a = a + b; }

/// `base` to the power `exponent`. A negative exponent takes the inverse; any base to the power 0
/// is 1.
Residue251 power(Residue251 base, int64_t exponent);

/// The multiplicative inverse; inv(0) = 0.
Residue251 inverse(Residue251 a);

/// a * inverse(b), so x / 0 = 0.
Residue251 operator/(Residue251 a, Residue251 b);

/// The sort key, as for Residue: -125 .. 125, zero at 0, and -a at minus the key of a.
int64_t orderKey(Residue251 a);

/// The hash of Residue.h, modulo 251.
Residue251 applyHash(FunctionKey function, Residue251 x);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_RESIDUE251_H
