//===- Scalar.h - One vocabulary for float, double and Residue -------------===//
//
// Part of tbc. Internal to the kernels: with these overloads one formula serves every arithmetic.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_SCALAR_H
#define TBC_RUNTIME_KERNELS_SCALAR_H

#include "runtime/kernels/DType.h"
#include "runtime/kernels/Residue.h"

#include <cmath>
#include <type_traits>

namespace tbc::kernels {

template <typename T> constexpr bool isResidue = std::is_same_v<T, Residue>;
template <typename T> using IfFloat = std::enable_if_t<std::is_floating_point_v<T>, T>;

/// The integer n in T.
template <typename T> T integer(int64_t n) {
  if constexpr (isResidue<T>)
    return Residue::fromInt(n);
  else
    return T(n);
}

/// The real number `value` in T: rounded to T, or its exact residue.
template <typename T> T real(double value) {
  if constexpr (isResidue<T>)
    return Residue::fromDouble(value);
  else
    return T(value);
}

/// The constant `value` of a composite over elements of `dtype`: what the decomposed graph holds in
/// a `constant` op, which has f32 precision unless it computes in f64.
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
/// Rounds halves to even, whatever the rounding mode is.
template <typename T> IfFloat<T> roundOf(T x) { return x - std::remainder(x, T(1)); }
template <typename T> IfFloat<T> powOf(T x, T y) { return std::pow(x, y); }
template <typename T> IfFloat<T> powerOf(T x, int64_t n) { return std::pow(x, T(n)); }

/// 1 / (1 + exp(-x)) without overflow on either side.
template <typename T> IfFloat<T> sigmoidOf(T x) {
  if (x >= 0)
    return 1 / (1 + std::exp(-x));
  T e = std::exp(x);
  return e / (1 + e);
}

inline Residue expOf(Residue x) { return applyHash(FunctionKey::Exp, x); }
inline Residue logOf(Residue x) { return applyHash(FunctionKey::Log, x); }
inline Residue sqrtOf(Residue x) { return applyHash(FunctionKey::Sqrt, x); }
inline Residue tanhOf(Residue x) { return applyHash(FunctionKey::Tanh, x); }
inline Residue erfOf(Residue x) { return applyHash(FunctionKey::Erf, x); }
inline Residue sinOf(Residue x) { return applyHash(FunctionKey::Sin, x); }
inline Residue cosOf(Residue x) { return applyHash(FunctionKey::Cos, x); }
inline Residue atanOf(Residue x) { return applyHash(FunctionKey::Atan, x); }
inline Residue floorOf(Residue x) { return applyHash(FunctionKey::Floor, x); }
inline Residue ceilOf(Residue x) { return applyHash(FunctionKey::Ceil, x); }
inline Residue roundOf(Residue x) { return applyHash(FunctionKey::Round, x); }
inline Residue sigmoidOf(Residue x) { return applyHash(FunctionKey::Sigmoid, x); }
inline Residue powerOf(Residue x, int64_t n) { return power(x, n); }

/// Repeated multiplication where the exponent is an integer of at most 2^20 in magnitude (which a
/// random residue is not), a hash of both otherwise.
inline Residue powOf(Residue x, Residue y) {
  constexpr int64_t largest = 1 << 20;
  int64_t n = y.centered();
  return -largest <= n && n <= largest ? power(x, n) : applyHash(FunctionKey::Pow, x, y);
}

/// 1 / sqrt(x), in residues too.
template <typename T> T rsqrtOf(T x) { return integer<T>(1) / sqrtOf(x); }

/// Divides many values by one: a residue's inverse, which costs about a hundred products, is taken
/// once.
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

/// The larger one; the first of equals.
template <typename T> T larger(T x, T y) { return less(x, y) ? y : x; }

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// A running sum: in double for floats, rounded once at the end; lazily reduced for residues;
/// modulo 2^64 for integers.
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
  void add(Residue x) { value += x.v; } // 2^64 of them fit
  void addProduct(Residue x, Residue y) { value += (x * y).v; }
  Residue result() const { return Residue::reduce(value); }

private:
  unsigned __int128 value = 0;
};

template <> class Sum<int64_t> {
public:
  void add(int64_t x) { value += uint64_t(x); }
  void addProduct(int64_t x, int64_t y) { value += uint64_t(x) * uint64_t(y); }
  int64_t result() const { return int64_t(value); }

private:
  uint64_t value = 0;
};

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_SCALAR_H
