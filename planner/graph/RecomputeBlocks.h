//===- RecomputeBlocks.h - Graph blocks recomputed or kept as a whole -----===//

#ifndef TBC_PLANNER_GRAPH_RECOMPUTEBLOCKS_H
#define TBC_PLANNER_GRAPH_RECOMPUTEBLOCKS_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the first ops of the graph blocks that may be recomputed or kept. These are the repeated
/// blocks of the forward order, each from the value that alone carries activations into it. Without
/// repeats, every such value begins a block. Ascending, at least one.
std::vector<int> blockStarts(const reshard::Graph &graph);

/// Returns the recomputation text of a plan: the mode, with numbers if only the first `blocks` of
/// the `of` graph blocks use it. Example: "full 40/126"; the other blocks use the next weaker mode.
std::string recomputeText(const std::string &mode, int64_t blocks, int64_t of);
/// Whether `text` is such a text: none, selective, full, or selective or full with numbers.
bool isRecomputeText(const std::string &text);
/// Returns the offload text of a plan: "none", "all", or the number of graph blocks. Example:
/// "3/8".
std::string offloadedBlocks(int64_t blocks, int64_t of);
/// Whether `text` is such a text.
bool isOffloadedBlocks(const std::string &text);
/// Returns the mode that keeps more: selective for full, none for selective.
std::string weakerMode(const std::string &mode);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_RECOMPUTEBLOCKS_H
