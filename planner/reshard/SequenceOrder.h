//===- SequenceOrder.h - Order of the tokens of a sequence ----------------===//
//
// Plain C++. If a sequence is split over n ranks in order, the last tokens of a causal attention
// have up to n times the work of the first. In zigzag order the sequence has 2n equal parts, and
// rank r has parts r and 2n-1-r. All ranks then have equal work. Source: Zhu,
// "ring-flash-attention" (zigzag), after Brandon et al., "Striped Attention", arXiv 2311.09431.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_SEQUENCEORDER_H
#define TBC_PLANNER_RESHARD_SEQUENCEORDER_H

#include "planner/reshard/Graph.h"

namespace tbc::reshard {

/// Returns the part of the original order (0 to 2 * ranks - 1) at position `place` in zigzag order.
/// Example: with 2 ranks, positions 0, 1, 2, 3 have parts 0, 3, 1, 2.
int64_t zigzagPart(int64_t place, int64_t ranks);

/// Returns why the tokens of `graph` cannot be in the zigzag order of `ranks` ranks, with the op or
/// tensor, or "". An op is independent of the order if its loops over the sequence can be split, or
/// if generators give it position ids. An op that reads neighbours depends on the order, and so
/// does a parameter or state with an entry per position.
std::string whyNoZigzag(const Graph &graph, int64_t ranks);

/// Returns, by value, whether it is of a generator and its elements differ along the sequence, so
/// that their order matters. Example: an iota over the tokens and its cosine, but not 0.5 for every
/// token.
std::vector<bool> positionValues(const Graph &graph);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SEQUENCEORDER_H
