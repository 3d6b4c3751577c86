//===- KeptBytesBound.h - Bound on the bytes kept for backward ------------===//

#ifndef TBC_PLANNER_SEARCH_KEPTBYTESBOUND_H
#define TBC_PLANNER_SEARCH_KEPTBYTESBOUND_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

/// Returns an upper bound on the bytes of one micro-batch kept for backward by all stages together
/// (counted on one device of each), in any plan of the candidate that takes less than `limit`
/// seconds. Negative if parameters alone do not fit. Less kept memory forces recomputation
/// (KeepBound.h).
///
/// Theorem: kept <= pp * (budget + host) - F. The budget is the memory limit without context and
/// allocator share, and `host` the host memory for offloaded residuals. F is leastParameterBytes().
/// For a pipeline also kept <= mostKeptAnywhere() - G, with G the gathered parameters that each
/// micro-batch keeps for its backward, and for one of repeated blocks kept <=
/// PipelineRoom::mostKeptBytes().
///
/// Proof sketch: each stage keeps at least its part of the micro-batch whose backward comes first,
/// beside its parameters; the sum over the stages gives the first bound. The others also count the
/// micro-batches in flight on each stage. A stage of a plan faster than `limit` runs all its
/// micro-batches, so one of them takes at most limit / accumulation, plus the savings by
/// recomputation: this limits the number of its blocks.
///
/// Example: 4 stages with a budget of 70 GB each and 160 GB of parameters and states: at most
/// 4 * 70 - 160 = 120 GB.
double mostKeptBytes(const BoundTables &tables, const Candidate &candidate, const DataMode &mode,
                     double limit);

/// Whether the values of `candidate`, without forced recomputation, cannot fit: they take more
/// than mostKeptBytes() without a limit on time, evenly divided over the devices of each stage.
///
/// Example: one stage with 60 GB usable and 20 GB of parameters and states holds 40 GB, so 45 GB of
/// kept values are too much.
bool keepsTooMuch(const BoundTables &tables, const Candidate &candidate);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_KEPTBYTESBOUND_H
