//===- Residue.h - Exact arithmetic modulo 2^61 - 1 ------------------------===//
//
// Part of tbc. Plain C++.
//
// In residue arithmetic every float value is an element of Z/p, p = 2^61 - 1. Sums do not depend on
// their order, so a parallel program equals the serial one bit for bit (docs/design.md, section 4).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_RESIDUE_H
#define TBC_RUNTIME_KERNELS_RESIDUE_H

#include <cstdint>

namespace tbc::kernels {

/// An element of Z/p in its canonical form, 0 <= v < p.
struct Residue {
  static constexpr uint64_t modulus = (uint64_t(1) << 61) - 1;

  uint64_t v = 0;

  /// n mod p.
  static Residue fromInt(int64_t n);

  /// The exact value m * 2^e of `x`, modulo p. Example: 0.5 is 2^60, because 2 * 2^60 = 1 mod p.
  /// Infinities are the ends of the order (orderKey). Throws KernelError for NaN.
  static Residue fromDouble(double x);

  /// v mod p for any 128-bit v.
  static Residue reduce(unsigned __int128 v) {
    constexpr unsigned __int128 mask = modulus;
    v = (v & mask) + (v >> 61);                               // < 2^68
    uint64_t folded = uint64_t(v & mask) + uint64_t(v >> 61); // < 2^61 + 2^7
    return {folded >= modulus ? folded - modulus : folded};
  }

  /// The integer congruent to this one in [-(p-1)/2, (p-1)/2]: the inverse of fromInt for small n.
  int64_t centered() const { return v > modulus / 2 ? -int64_t(modulus - v) : int64_t(v); }
};

inline Residue operator+(Residue a, Residue b) {
  uint64_t sum = a.v + b.v;
  return {sum >= Residue::modulus ? sum - Residue::modulus : sum};
}
inline Residue operator-(Residue a) { return {a.v == 0 ? 0 : Residue::modulus - a.v}; }
inline Residue operator-(Residue a, Residue b) { return a + -b; }
inline Residue operator*(Residue a, Residue b) {
  return Residue::reduce((unsigned __int128)a.v * b.v);
}
inline bool operator==(Residue a, Residue b) { return a.v == b.v; }
inline bool operator!=(Residue a, Residue b) { return a.v != b.v; }
inline Residue &operator+=(Residue &a, Residue b) { return a = a + b; }

/// `base` to the power `exponent`. A negative exponent takes the inverse; any base to the power 0
/// is 1.
Residue power(Residue base, int64_t exponent);

/// The multiplicative inverse; inv(0) = 0.
Residue inverse(Residue a);

/// a * inverse(b), so x / 0 = 0.
Residue operator/(Residue a, Residue b);

/// The sort key by which residues are compared: r * a mod p for a fixed random r, as a centered
/// integer. Zero has key 0, and -a has minus the key of a. So about half of all residues are
/// "negative", and comparisons with 0 take both branches.
int64_t orderKey(Residue a);

/// The scalar functions that residue arithmetic replaces by a keyed hash. The key names the
/// function, never the op.
enum class FunctionKey : uint64_t {
  Exp = 1,
  Log,
  Sqrt,
  Tanh,
  Erf,
  Sigmoid,
  Sin,
  Cos,
  Pow,
  Atan,
  Floor,
  Ceil,
  Round
};

/// The hash h_f(x), with exp(-inf) = 0, and h_f(0) = f(0) where f(0) is 0 or 1 (exp and cos: 1;
/// sqrt, tanh, erf, sin, atan, floor, ceil, round: 0).
Residue applyHash(FunctionKey function, Residue x);

/// The hash of two arguments, for pow unless the exponent is a small integer.
Residue applyHash(FunctionKey function, Residue x, Residue y);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_RESIDUE_H
