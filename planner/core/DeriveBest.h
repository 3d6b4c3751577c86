//===- DeriveBest.h - The best candidates, op by op -------------------------===//

#ifndef TBC_PLANNER_CORE_DERIVEBEST_H
#define TBC_PLANNER_CORE_DERIVEBEST_H

#include "planner/core/Explore.h"
#include "planner/core/Workers.h"

#include <vector>

namespace tbc::planner {

/// What derived plans are measured against, and how many there may be.
struct DeriveLimits {
  const Cluster &cluster;       // as it is: the searcher may know it at its upper end
  int64_t memoryLimitBytes = 0; // as in a plan
  /// The verdict that they shall have. "Fits" below means that they have it.
  MemoryVerdict goal = MemoryVerdict::Fits;
  size_t top = 1;   // that are derived anyway
  size_t most = 16; // until one fits; small graphs have more
  const Deadline &deadline;

  /// What a device may hold.
  int64_t limitBytes(const Cluster &devices) const;
  /// How far `plan` is from fitting; less than 0 where it fits.
  int64_t excessBytes(const Plan &plan) const;
};

/// By step time, those that meet `goal` before all others; equal times in order of enumeration.
void sortExact(std::vector<ExactCandidate> &exact, MemoryVerdict goal);

/// Whether a graph is cheap enough to look at closely everywhere.
bool isSmallGraph(const reshard::Graph &graph);

/// Derives the best of `scored` candidates exactly: the first `top`, and more while the next might
/// still be better or nothing fits yet. The best comes first, and each group of candidates
/// (groupOf) once.
///
/// Scores are off by little; what is within that of the best is looked at. Of single tensors they
/// know less, and in a small graph those count: there, where `scored` is all that was scored and
/// not the best of each group, more is looked at, and in a very small one everything, with its cuts
/// moved one at a time, before nothing fits.
Result<std::vector<ExactCandidate>> deriveBest(Searcher &searcher, Workers &workers,
                                               const reshard::Graph &graph,
                                               std::vector<Candidate> scored,
                                               const DeriveLimits &limits, const OverlapPins &pins);

/// One candidate op by op, as deriveBest.
Result<ExactCandidate> deriveExactly(Searcher &searcher, const reshard::Graph &graph,
                                     Candidate candidate, const DeriveLimits &limits,
                                     const OverlapPins &pins);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_DERIVEBEST_H
