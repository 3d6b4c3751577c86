//===- PartialRecompute.h - Recomputation of the fewest blocks ------------===//
//
// A candidate with recomputation "selective" or "full" uses it in the first blocks of each chunk,
// as many as its stage needs to fit. The other blocks use the next weaker mode. The first blocks
// are chosen because their values are kept longest, and they recompute when the others have freed
// theirs. Thread-safe.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_PARTIALRECOMPUTE_H
#define TBC_PLANNER_SEARCH_PARTIALRECOMPUTE_H

#include "planner/search/CostTables.h"

#include <vector>

namespace tbc::planner {

/// Whether pins and conditions leave `mode` open.
bool allows(const Space &space, RecomputeMode mode);

/// Recomputes the fewest blocks per stage that fit (all blocks of a stage that never fits), or the
/// pinned number. Returns false if no block recomputes.
bool chooseRecomputed(const CostTables &costs, Candidate &candidate, const Mix &mix,
                      const DataMode &mode);

/// If recomputation is open, gives the candidate the next stronger mode, at first for no block: the
/// start for recomputeMore(). Example: "selective 125/125" becomes "full 0/125", which is the same
/// plan. Returns false if the mode is the strongest or pinned, or the next one forbidden.
bool recomputeStronger(const CostTables &costs, Candidate &candidate);

/// For a partially recomputing candidate: recomputes enough further blocks, at least one, on each
/// stage with negative headroom. `headroomBytes`: by stage. Returns false if no further block can
/// be recomputed.
bool recomputeMore(const CostTables &costs, Candidate &candidate,
                   const std::vector<double> &headroomBytes);

/// Recomputes fewer blocks, as many as their kept values fit in the headroom. Returns false if
/// there is no such block.
bool recomputeLess(const CostTables &costs, Candidate &candidate,
                   const std::vector<double> &headroomBytes);

/// Returns by op whether the candidate recomputes it.
std::vector<bool> recomputedOps(const CostTables &costs, const Candidate &candidate);

/// Returns the recomputation of the candidate, as in a plan. Example: "full 40/126".
Recompute recomputeOf(const SearchProblem &problem, const Candidate &candidate);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PARTIALRECOMPUTE_H
