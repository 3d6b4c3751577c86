//===- Refusals.h - Jobs and pins that no search can answer ----------------===//

#ifndef TBC_PLANNER_SEARCH_REFUSALS_H
#define TBC_PLANNER_SEARCH_REFUSALS_H

#include "planner/pins/OpPins.h"
#include "planner/pins/Space.h"
#include "planner/search/Candidate.h"

#include <vector>

namespace tbc::planner {

/// Refuses a model whose states have more bytes than sums in 64 bits hold, with all else beside
/// them. Example: 2^61 parameters in bf16 with AdamW take 2, 4 and 12 bytes each, 36 EiB.
Status checkBytes(const reshard::Graph &graph, const Job &job);

/// Refuses a pinned cp axis whose split the model does not allow.
Status checkContext(const reshard::Graph &graph, const Space &space, const Pins &pins);

/// Refuses a number of blocks to recompute or to offload that the model does not have.
Status checkBlocks(const Space &space, const Pins &pins, int64_t numBlocks);

/// Drops candidates whose number of chunks differs from the pinned beginnings; refuses these if
/// none is left.
Status keepBegun(std::vector<Candidate> &candidates, const PinnedOps &pinned);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_REFUSALS_H
