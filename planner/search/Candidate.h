//===- Candidate.h - A configuration of the search ------------------------===//

#ifndef TBC_PLANNER_SEARCH_CANDIDATE_H
#define TBC_PLANNER_SEARCH_CANDIDATE_H

#include "planner/pins/Space.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// One complete configuration, first bounded and then scored.
struct Candidate {
  MeshShape mesh;
  ZeroChoice zero;
  int64_t batch = 1; // global, possibly rounded up
  int64_t microBatch = 1, accumulation = 1;
  ScheduleChoice schedule;
  reshard::ContextForm context = reshard::ContextForm::AllGather; // with cp > 1
  RecomputeMode recompute = RecomputeMode::None;
  bool offloadsStates = false, offloadsResiduals = false;
  double lowerBound = 0;  // of every plan that the search makes from it
  double provenBound = 0; // of every plan with its mesh, micro-batch and schedule
  double leastBytes = 0;  // lower bound on its fullest device
  int order = 0;          // of enumeration

  // Set by scoring.
  std::vector<int> firstOps;
  /// If blocks differ in recomputation: by stage, the number of blocks with mode `recompute`, and
  /// by chunk the op at the end of these. Else empty.
  std::vector<int64_t> recomputedBlocks;
  std::vector<int> recomputeEnds;
  /// If residuals are offloaded: by stage, the number of such blocks, and by chunk the op at their
  /// end.
  std::vector<int64_t> offloadedBlocks;
  std::vector<int> offloadEnds;
  double seconds = 0;
  double peakBytes = 0;
  int fullestStage = 0;
  bool feasible = false;
};

/// A candidate derived op by op.
struct ExactCandidate {
  Candidate candidate;
  Plan plan; // with its prediction
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_CANDIDATE_H
