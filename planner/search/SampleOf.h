//===- SampleOf.h - A sample of an exploration ------------------------------===//

#ifndef TBC_PLANNER_SEARCH_SAMPLEOF_H
#define TBC_PLANNER_SEARCH_SAMPLEOF_H

#include "planner/plan/SearchSample.h"
#include "planner/search/Explore.h"

#include <vector>

namespace tbc::planner {

/// Returns a sample of the scored candidates. The answer and `runnersUp` have the ranks 0, 1, 2 ..
/// and exact numbers, as do all derived candidates; others have their scores. `goal`: as in Pins.
///
/// It takes, as far as there is room: the answer and its runners-up; the Pareto front of time and
/// memory; then every k-th of the others by time, two thirds of them such that fit.
SearchSample sampleOf(const Exploration &exploration,
                      const std::vector<const ExactCandidate *> &runnersUp, MemoryVerdict goal);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SAMPLEOF_H
