//===- Scalar.h - Scalar functions for floats and residues ----------------===//
//
// Part of tbc. Internal to the kernels. With these overloads one formula works in every arithmetic.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_SCALAR_H
#define TBC_RUNTIME_KERNELS_SCALAR_H

#include "runtime/kernels/DType.h"
#include "runtime/kernels/Residue.h"
#include "runtime/kernels/Residue251.h"

#include <cmath>
#include <type_traits>
#include <vector>

namespace tbc::kernels {

template <typename T>
constexpr bool isResidue = std::is_same_v<T, Residue> || std::is_same_v<T, Residue251>;
template <typename T> using IfFloat = std::enable_if_t<std::is_floating_point_v<T>, T>;
template <typename T> using IfResidue = std::enable_if_t<isResidue<T>, T>;

/// The integer n in T.
template <typename T> T integer(int64_t n) {
  if constexpr (isResidue<T>)
    return T::fromInt(n);
  else
    return T(n);
}

/// The real number `value` in T: rounded to T, or its exact residue.
template <typename T> T real(double value) {
  if constexpr (isResidue<T>)
    return T::fromDouble(value);
  else
    return T(value);
}

/// The constant `value` of a composite over elements of `dtype`. It is rounded to f32 unless the op
/// computes in f64, as in the `constant` op of a decomposed graph.
template <typename T> T compositeConstant(DType dtype, double value) {
  return real<T>(dtype == DType::F64 ? value : double(float(value)));
}

template <typename T> IfFloat<T> expOf(T x) { return std::exp(x); }
template <typename T> IfFloat<T> logOf(T x) { return std::log(x); }
template <typename T> IfFloat<T> sqrtOf(T x) { return std::sqrt(x); }
template <typename T> IfFloat<T> tanhOf(T x) { return std::tanh(x); }
template <typename T> IfFloat<T> erfOf(T x) { return std::erf(x); }
template <typename T> IfFloat<T> sinOf(T x) { return std::sin(x); }
template <typename T> IfFloat<T> cosOf(T x) { return std::cos(x); }
template <typename T> IfFloat<T> atanOf(T x) { return std::atan(x); }
template <typename T> IfFloat<T> floorOf(T x) { return std::floor(x); }
template <typename T> IfFloat<T> ceilOf(T x) { return std::ceil(x); }
/// Rounds halves to even, in any rounding mode. An infinity has no remainder.
template <typename T> IfFloat<T> roundOf(T x) {
  return std::isinf(x) ? x : x - std::remainder(x, T(1));
}
template <typename T> IfFloat<T> powOf(T x, T y) { return std::pow(x, y); }
template <typename T> IfFloat<T> powerOf(T x, int64_t n) { return std::pow(x, T(n)); }

/// 1 / (1 + exp(-x)) without overflow on either side.
template <typename T> IfFloat<T> sigmoidOf(T x) {
  if (x >= 0)
    return 1 / (1 + std::exp(-x));
  T e = std::exp(x);
  return e / (1 + e);
}

template <typename T> IfResidue<T> expOf(T x) { return applyHash(FunctionKey::Exp, x); }
template <typename T> IfResidue<T> logOf(T x) { return applyHash(FunctionKey::Log, x); }
template <typename T> IfResidue<T> sqrtOf(T x) { return applyHash(FunctionKey::Sqrt, x); }
template <typename T> IfResidue<T> tanhOf(T x) { return applyHash(FunctionKey::Tanh, x); }
template <typename T> IfResidue<T> erfOf(T x) { return applyHash(FunctionKey::Erf, x); }
template <typename T> IfResidue<T> sinOf(T x) { return applyHash(FunctionKey::Sin, x); }
template <typename T> IfResidue<T> cosOf(T x) { return applyHash(FunctionKey::Cos, x); }
template <typename T> IfResidue<T> atanOf(T x) { return applyHash(FunctionKey::Atan, x); }
template <typename T> IfResidue<T> floorOf(T x) { return applyHash(FunctionKey::Floor, x); }
template <typename T> IfResidue<T> ceilOf(T x) { return applyHash(FunctionKey::Ceil, x); }
template <typename T> IfResidue<T> roundOf(T x) { return applyHash(FunctionKey::Round, x); }
template <typename T> IfResidue<T> sigmoidOf(T x) { return applyHash(FunctionKey::Sigmoid, x); }
template <typename T> IfResidue<T> powerOf(T x, int64_t n) { return power(x, n); }

/// Repeated multiplication if the exponent is an integer of at most 2^20 in magnitude, otherwise a
/// hash of both. A random residue is not such an integer.
inline Residue powOf(Residue x, Residue y) {
  constexpr int64_t largest = 1 << 20;
  int64_t n = y.centered();
  return -largest <= n && n <= largest ? power(x, n) : applyHash(FunctionKey::Pow, x, y);
}

/// Modulo 251 every exponent is congruent to an integer of at most 125.
inline Residue251 powOf(Residue251 x, Residue251 y) { return power(x, y.centered()); }

/// 1 / sqrt(x), in residues too.
template <typename T> T rsqrtOf(T x) { return integer<T>(1) / sqrtOf(x); }

/// Divides many values by one. For residues the inverse is computed once; it costs about a hundred
/// multiplications.
template <typename T> class Divisor {
public:
  explicit Divisor(T value) : value(isResidue<T> ? integer<T>(1) / value : value) {}
  T divide(T x) const {
    if constexpr (isResidue<T>)
      return x * value;
    else
      return x / value;
  }

private:
  T value;
};

/// x < y; for residues the order of `orderKey`.
template <typename T> bool less(T x, T y) {
  if constexpr (isResidue<T>)
    return orderKey(x) < orderKey(y);
  else
    return x < y;
}

template <typename T> bool isPositive(T x) { return less(integer<T>(0), x); }

/// Residues and integers are numbers.
template <typename T> bool isNaN(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(x);
  else
    return false;
}

/// Returns the larger one; the first if they are equal. NaN if one of them is, as in PyTorch.
template <typename T> T larger(T x, T y) { return less(x, y) || isNaN(y) ? y : x; }
/// Returns the smaller one, with the same rules.
template <typename T> T smaller(T x, T y) { return less(y, x) || isNaN(y) ? y : x; }

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// A running sum. Floats add in double and round once at the end; residues are reduced lazily;
/// integers wrap modulo 2^64.
template <typename T> class Sum {
public:
  void add(T x) { value += double(x); }
  void addProduct(T x, T y) { value += double(x) * double(y); }
  T result() const { return T(value); }

private:
  double value = 0;
};

template <> class Sum<Residue> {
public:
  void add(Residue x) { value += x.v; } // 2^64 terms fit
  void addProduct(Residue x, Residue y) { value += (x * y).v; }
  Residue result() const { return Residue::reduce(value); }

private:
  unsigned __int128 value = 0;
};

template <> class Sum<Residue251> {
public:
  void add(Residue251 x) { value += x.v; }
  void addProduct(Residue251 x, Residue251 y) { value += uint64_t(x.v) * y.v; } // 2^48 terms fit
  Residue251 result() const { return Residue251::reduce(value); }

private:
  uint64_t value = 0;
};

template <> class Sum<int64_t> {
public:
  void add(int64_t x) { value += uint64_t(x); }
  void addProduct(int64_t x, int64_t y) { value += uint64_t(x) * uint64_t(y); }
  int64_t result() const { return int64_t(value); }

private:
  uint64_t value = 0;
};

template <typename T> std::vector<T> resultsOf(const std::vector<Sum<T>> &sums) {
  std::vector<T> results;
  results.reserve(sums.size());
  for (const Sum<T> &sum : sums)
    results.push_back(sum.result());
  return results;
}

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_SCALAR_H
