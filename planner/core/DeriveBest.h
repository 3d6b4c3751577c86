//===- DeriveBest.h - The best candidates, op by op -------------------------===//

#ifndef TBC_PLANNER_CORE_DERIVEBEST_H
#define TBC_PLANNER_CORE_DERIVEBEST_H

#include "planner/core/Explore.h"
#include "planner/core/Workers.h"

#include <vector>

namespace tbc::planner {

/// Whether a graph is cheap enough to look at closely everywhere.
bool isSmallGraph(const reshard::Graph &graph);

/// Derives the best of `scored` candidates exactly: the first `top`, and more while the next might
/// still be better or nothing fits yet. The best comes first, and each group of candidates
/// (groupOf) once.
///
/// Scores are off by little; what is within that of the best is looked at. Of single tensors they
/// know less, and in a small graph those count: there, where `scored` is all that was scored and
/// not the best of each group, more is looked at, and in a very small one everything, with its cuts
/// moved one at a time, before nothing fits. `limits` has the cluster and the limit of memory.
Result<std::vector<ExactCandidate>> deriveBest(Searcher &searcher, Workers &workers,
                                               const reshard::Graph &graph,
                                               std::vector<Candidate> scored, size_t top,
                                               const Plan &limits, const OverlapPins &pins);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_DERIVEBEST_H
