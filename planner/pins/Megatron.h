//===- Megatron.h - Tensor parallelism as Megatron-LM lays it out ---------===//

#ifndef TBC_PLANNER_PINS_MEGATRON_H
#define TBC_PLANNER_PINS_MEGATRON_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// Returns the allowed splits of each op of `graph` (bits of SplitKind), for Megatron's layout:
/// - A matmul with a parameter is split by columns if its input is whole, else by rows. Example: q,
///   k, v, gate, up by columns; o, down by rows; the head by columns.
/// - The first table that tokens are looked up in is split by rows, the vocabulary, if it can be.
/// - Ops on whole values stay whole, or split the tokens. Ops on split values are free.
///
/// Sets `isMatrix` for the ops that multiply with a parameter. Backward ops follow their forward
/// op.
std::vector<unsigned> megatronSplits(const reshard::Graph &graph, bool splitsTokens,
                                     std::vector<bool> &isMatrix);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_MEGATRON_H
