//===- OffloadBlocks.h - Offloading of the fewest blocks ------------------===//
//
// A candidate with offloaded residuals offloads those of the first blocks of each chunk: all
// blocks, the pinned number, or the fewest that fit. The first blocks are chosen because their
// residuals are kept longest. Thread-safe.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_OFFLOADBLOCKS_H
#define TBC_PLANNER_SEARCH_OFFLOADBLOCKS_H

#include "planner/search/CostTables.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Offloads the first `blocks` blocks of the stage. A stage without blocks offloads all its
/// residuals.
void setOffloaded(const CostTables &costs, Candidate &candidate, int stage, int64_t blocks);

/// Offloads all blocks, the pinned number, or the fewest that fit.
void chooseOffloaded(const CostTables &costs, Candidate &candidate, const Mix &mix,
                     const DataMode &mode);

/// Offloads the residuals of one more block on each stage with negative headroom, for a candidate
/// that offloads as few as fit. `headroomBytes`: by stage. Returns false if all are offloaded.
bool offloadMore(const CostTables &costs, Candidate &candidate,
                 const std::vector<double> &headroomBytes);

/// Returns the offload of the candidate, as in a plan.
Offload offloadOf(const CostTables &costs, const Candidate &candidate);

/// Adds to `chunk` the copies between device and host of chunk `index`, which ends before op
/// `last`.
void addHostCopies(const CostTables &costs, const Candidate &candidate, const Mix &mix,
                   const DataMode &mode, int index, int last, StageSeconds &chunk);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_OFFLOADBLOCKS_H
