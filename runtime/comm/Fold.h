//===- Fold.h - A reduction, term by term -----------------------------------===//
//
// Part of tbc. Plain C++. Internal to the arithmetic of collectives. Reductions of all terms at
// once (Reduce.h) and reductions passed on from host to host (ReduceRuns.h) use these formulas, so
// both have the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_FOLD_H
#define TBC_RUNTIME_COMM_FOLD_H

#include "runtime/comm/Communicator.h"
#include "runtime/kernels/Scalar.h"

namespace tbc::comm {

/// The unrounded state after some terms: double for floats, which represents each of them exactly;
/// all 64 bits for integers.
template <typename T> struct Folded {
  using Type = std::conditional_t<std::is_floating_point_v<T>, double, T>;
};

/// Adds or multiplies without the undefined overflow of signed integers.
template <typename S> S plus(S a, S b) {
  if constexpr (std::is_same_v<S, int64_t>)
    return S(uint64_t(a) + uint64_t(b));
  else
    return a + b;
}
template <typename S> S times(S a, S b) {
  if constexpr (std::is_same_v<S, int64_t>)
    return S(uint64_t(a) * uint64_t(b));
  else
    return a * b;
}

/// Returns the state after a first term. Sums begin with +0, so that sums of zeros have one sign.
/// Example: the sum of -0 and -0 is +0.
template <typename T, typename S = typename Folded<T>::Type>
S beginFold(const Reduction &reduction, T term) {
  switch (reduction.kind) {
  case ReduceKind::Sum:
  case ReduceKind::Avg:
    return plus(S(kernels::integer<S>(0)), S(term));
  case ReduceKind::PremulSum:
    return plus(S(kernels::integer<S>(0)), times(S(term), kernels::real<S>(reduction.factor)));
  default:
    return S(term);
  }
}

/// Returns the state after another term. The bitwise kinds are for integers.
template <typename T, typename S = typename Folded<T>::Type>
S fold(const Reduction &reduction, S state, T term) {
  switch (reduction.kind) {
  case ReduceKind::Sum:
  case ReduceKind::Avg:
    return plus(state, S(term));
  case ReduceKind::PremulSum:
    return plus(state, times(S(term), kernels::real<S>(reduction.factor)));
  case ReduceKind::Product:
    return times(state, S(term));
  case ReduceKind::Max:
    return kernels::larger(state, S(term));
  case ReduceKind::Min:
    return kernels::smaller(state, S(term));
  case ReduceKind::BitAnd:
  case ReduceKind::BitOr:
  case ReduceKind::BitXor:
    break;
  }
  if constexpr (std::is_same_v<S, int64_t>)
    return reduction.kind == ReduceKind::BitAnd  ? state & term
           : reduction.kind == ReduceKind::BitOr ? state | term
                                                 : state ^ term;
  return state;
}

/// Returns the result after `numTerms` terms, rounded to T.
template <typename T, typename S = typename Folded<T>::Type>
T endFold(const Reduction &reduction, S state, int64_t numTerms) {
  if (reduction.kind == ReduceKind::Avg)
    return T(state / kernels::integer<S>(numTerms));
  return T(state);
}

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_FOLD_H
