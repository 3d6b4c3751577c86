//===- Recompute.h - Choice of recomputed forward ops ---------------------===//
//
// Plain C++. Recomputation (activation checkpointing) is a flag per forward op: the backward
// recomputes its results instead of keeping them.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_GRAPH_RECOMPUTE_H
#define TBC_PLANNER_GRAPH_RECOMPUTE_H

#include "planner/graph/RecomputeBlocks.h"
#include "planner/reshard/Chunks.h"
#include "planner/reshard/Recompute.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the flags, one per op, for `mode`:
/// - none: nothing is recomputed.
/// - selective: recomputes all results except those of matmuls, convolutions and attention, joints,
///   and results less than a fourth of the size of their operands.
/// - full: recomputes all results except joints, and results less than 1/64 of their operands.
///
/// A joint is a value that alone joins two parts of the graph (singleValueCuts). A joint computed
/// by a light op from other joints is recomputed too. With `wholeBlocks`, as in frameworks, `full`
/// recomputes the joints inside graph blocks (blockStarts) as well. Example: a Transformer keeps
/// the sums after attention and after the MLP of each layer, and with `wholeBlocks` one value per
/// layer.
std::vector<bool> recomputeFlags(const reshard::Graph &graph, RecomputeMode mode,
                                 bool wholeBlocks = false);

/// Returns flags, by op, of forward ops whose recomputation saves time. Such an op is elementwise,
/// and its result has one reader in forward and one in backward. Both may read it from registers
/// (isFused). It depends on one activation that takes no more bytes to keep. `joinsMatmuls`: a
/// library executes some readers in the call of the matmul before them, and reads from memory what
/// it does not multiply. Example: the bias before gelu is kept, since the gradient of gelu is in
/// the call of a matmul; before gelu in its erf form it is not.
std::vector<bool> freeToRecompute(const reshard::Graph &graph, bool joinsMatmuls);

/// Returns flags, one per op, of forward ops whose kept results are worth a copy to the host: all
/// except generators and ops with results much smaller than their operands.
std::vector<bool> offloadFlags(const reshard::Graph &graph);

/// Returns a lower bound on the bytes that all devices together keep from forward to backward, if
/// the ops with a flag in `recompute` run again: the values with a batch that a backward op or an
/// op that runs again reads, each once, and of its views the least on the way.
/// Example: y = gelu(x W) of 2 MB, with x of 1 MB and a matmul behind it. Without a flag it keeps
/// x, x W and y, 5 MB; gelu flagged keeps x and x W, 3 MB.
double leastKeptBytes(const reshard::Graph &graph, const std::vector<bool> &recompute);

using reshard::numForwardOps;
using reshard::reexecutedOps;
using reshard::withRecompute;

/// Returns, by position of the forward order, the value that alone carries activations across it:
/// `cuts[i]` for the position after forward op i. The entry is -1 if no value or several values
/// cross. Inputs, parameters and constant-derived values do not count.
std::vector<int> singleValueCuts(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_RECOMPUTE_H
