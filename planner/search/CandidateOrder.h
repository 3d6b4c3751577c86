//===- CandidateOrder.h - The order of candidates -------------------------===//

#ifndef TBC_PLANNER_SEARCH_CANDIDATEORDER_H
#define TBC_PLANNER_SEARCH_CANDIDATEORDER_H

#include "planner/search/Candidate.h"

#include <tuple>

namespace tbc::planner {

/// Candidates of one group differ only in micro-batch and schedule, and compete for one place.
/// Example: dp=8 with micro-batch 1 and dp=8 with micro-batch 2.
inline auto groupOf(const Candidate &c) {
  return std::make_tuple(c.mesh.sizes(), c.context, c.zero.zero, c.zero.keepGathered, c.recompute);
}

/// Twins differ only by recomputation.
inline auto twinsOf(const Candidate &c) {
  const ScheduleChoice &of = c.schedule;
  return std::make_tuple(c.mesh.sizes(), c.context, c.zero.zero, c.zero.keepGathered, c.microBatch,
                         of.kind(), of.chunksPerStage, of.thereAndBack);
}

/// Orders by fit, then by time if both fit, else by peak memory.
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

#endif // TBC_PLANNER_SEARCH_CANDIDATEORDER_H
