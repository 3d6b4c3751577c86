//===- CandidateOrder.h - Which candidate is the better one ----------------===//

#ifndef TBC_PLANNER_CORE_CANDIDATEORDER_H
#define TBC_PLANNER_CORE_CANDIDATEORDER_H

#include "planner/core/Searcher.h"

#include <tuple>

namespace tbc::planner {

/// Candidates that differ in no more than micro-batch and schedule compete for one place.
inline auto groupOf(const Candidate &c) {
  return std::make_tuple(c.mesh.sizes(), c.context, c.zero.zero, c.zero.keepGathered, c.recompute);
}

/// By time those that fit, then by how far they are from fitting those that do not.
inline bool isBetter(const Candidate &a, bool aFits, const Candidate &b, bool bFits) {
  if (aFits != bFits)
    return aFits;
  double keyA = aFits ? a.seconds : a.peakBytes, keyB = bFits ? b.seconds : b.peakBytes;
  return std::tie(keyA, a.order) < std::tie(keyB, b.order);
}
inline bool isBetter(const Candidate &a, const Candidate &b) {
  return isBetter(a, a.feasible, b, b.feasible);
}

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_CANDIDATEORDER_H
