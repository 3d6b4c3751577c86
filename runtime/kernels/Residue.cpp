//===- Residue.cpp - Exact arithmetic modulo 2^61 - 1 ----------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Residue.h"
#include "runtime/kernels/KernelError.h"

#include <cmath>

using namespace tbc::kernels;

namespace {

// Arbitrary odd constants. They define residue results: every rank and every tool must use the
// same.
constexpr uint64_t orderMultiplier = 0x0b5d2f1c9e3779b9;
constexpr uint64_t hashSeed = 0x9e3779b97f4a7c15;

/// A bijective mixer of 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t keyed(FunctionKey function, uint64_t x) {
  return mix(mix(x + hashSeed) + uint64_t(function) * hashSeed);
}

} // namespace

Residue Residue::fromInt(int64_t n) {
  int64_t remainder = n % int64_t(modulus);
  return {remainder < 0 ? uint64_t(remainder + int64_t(modulus)) : uint64_t(remainder)};
}

/// The residue with the largest order key.
static Residue largestResidue() {
  static const Residue largest =
      inverse({orderMultiplier}) * Residue::fromInt(int64_t(Residue::modulus / 2));
  return largest;
}

Residue Residue::fromDouble(double x) {
  require(!std::isnan(x), "NaN has no residue");
  if (std::isinf(x))
    return x > 0 ? largestResidue() : -largestResidue();
  int exponent;
  int64_t significand = int64_t(std::ldexp(std::frexp(x, &exponent), 53));
  // 2^61 = 1 modulo p, so a power of two is a shift by its exponent modulo 61.
  int shift = ((exponent - 53) % 61 + 61) % 61;
  return fromInt(significand) * Residue{uint64_t(1) << shift};
}

Residue tbc::kernels::power(Residue base, int64_t exponent) {
  if (exponent < 0)
    return power(inverse(base), -exponent);
  Residue result{1};
  for (; exponent; exponent >>= 1, base = base * base)
    if (exponent & 1)
      result = result * base;
  return result;
}

Residue tbc::kernels::inverse(Residue a) {
  // Extended Euclid on (p, a), keeping x * a = r (mod p); for a = 0 the result is x = 0.
  int64_t r0 = int64_t(Residue::modulus), r1 = int64_t(a.v), x0 = 0, x1 = 1;
  if (r1 == 0)
    return {0};
  while (r1 != 0) {
    int64_t quotient = r0 / r1;
    int64_t r2 = r0 - quotient * r1, x2 = x0 - quotient * x1;
    r0 = r1, r1 = r2, x0 = x1, x1 = x2;
  }
  return Residue::fromInt(x0);
}

Residue tbc::kernels::operator/(Residue a, Residue b) { return a * inverse(b); }

int64_t tbc::kernels::orderKey(Residue a) { return (Residue{orderMultiplier} * a).centered(); }

Residue tbc::kernels::applyHash(FunctionKey function, Residue x) {
  if (function == FunctionKey::Exp && x == -largestResidue())
    return {0};
  if (x.v == 0) {
    switch (function) {
    case FunctionKey::Exp:
    case FunctionKey::Cos:
      return {1};
    case FunctionKey::Sqrt:
    case FunctionKey::Tanh:
    case FunctionKey::Erf:
    case FunctionKey::Sin:
    case FunctionKey::Atan:
    case FunctionKey::Floor:
    case FunctionKey::Ceil:
    case FunctionKey::Round:
      return {0};
    case FunctionKey::Log:
    case FunctionKey::Sigmoid:
    case FunctionKey::Pow:
      break;
    }
  }
  return Residue::reduce(keyed(function, x.v));
}

Residue tbc::kernels::applyHash(FunctionKey function, Residue x, Residue y) {
  return Residue::reduce(keyed(function, mix(keyed(function, x.v)) + y.v));
}
