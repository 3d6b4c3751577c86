//===- Residue251.cpp - Arithmetic modulo 251 -------------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Residue251.h"
#include "runtime/kernels/KernelError.h"

#include <array>
#include <cmath>

using namespace tbc::kernels;

/// Arbitrary; it defines results, as in Residue.cpp.
static constexpr uint8_t orderMultiplier = 95;

/// The residue with the largest order key.
static Residue251 largestResidue() {
  static const Residue251 largest =
      inverse(Residue251(orderMultiplier)) * Residue251::fromInt(Residue251::modulus / 2);
  return largest;
}

Residue251 Residue251::fromDouble(double x) {
  require(!std::isnan(x), "NaN has no residue");
  if (std::isinf(x))
    return x > 0 ? largestResidue() : -largestResidue();
  int exponent;
  auto significand = int64_t(std::ldexp(std::frexp(x, &exponent), 53));
  return fromInt(significand) * power(Residue251{2}, exponent - 53);
}

Residue251 tbc::kernels::power(Residue251 base, int64_t exponent) {
  if (exponent < 0)
    return power(inverse(base), -exponent);
  Residue251 result{1};
  for (; exponent; exponent >>= 1, base = base * base)
    if (exponent & 1)
      result = result * base;
  return result;
}

Residue251 tbc::kernels::inverse(Residue251 a) {
  static const std::array<uint8_t, Residue251::modulus> table = [] {
    std::array<uint8_t, Residue251::modulus> inverses{};
    // Fermat: a^(p - 2) is the inverse, and 0 for a = 0.
    for (uint32_t i = 0; i < Residue251::modulus; ++i)
      inverses[i] = power(Residue251(uint8_t(i)), Residue251::modulus - 2).v;
    return inverses;
  }();
  return Residue251(table[a.v]);
}

Residue251 tbc::kernels::operator/(Residue251 a, Residue251 b) { return a * inverse(b); }

int64_t tbc::kernels::orderKey(Residue251 a) {
  return (Residue251{orderMultiplier} * a).centered();
}

Residue251 tbc::kernels::applyHash(FunctionKey function, Residue251 x) {
  if (function == FunctionKey::Exp && x == -largestResidue())
    return Residue251(0);
  return Residue251::reduce(applyHash(function, Residue{x.v}).v);
}
