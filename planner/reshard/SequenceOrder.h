//===- SequenceOrder.h - In which order the tokens of a sequence stand -----===//
//
// Plain C++. Split over n ranks in the order in which they come, the last tokens of a causal
// attention have n times the work of the first. In zigzag order rank r has of 2n equal parts r and
// 2n-1-r, and all have the same. Source: Zhu, "ring-flash-attention" (zigzag), after Brandon et
// al., "Striped Attention", arXiv 2311.09431.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_SEQUENCEORDER_H
#define TBC_PLANNER_RESHARD_SEQUENCEORDER_H

#include "planner/reshard/Graph.h"

namespace tbc::reshard {

/// Which of the 2 * ranks parts of the original order stands at `place` in zigzag order.
int64_t zigzagPart(int64_t place, int64_t ranks);

/// Why the tokens of `graph` may not stand in the zigzag order of `ranks` ranks, naming the op or
/// tensor, or "". Ops that are the same for every order have loops over the sequence that may be
/// split, or generators that say where a token is. Not so: an op that looks at neighbours, and a
/// parameter or state with an entry per place.
std::string whyNoZigzag(const Graph &graph, int64_t ranks);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SEQUENCEORDER_H
