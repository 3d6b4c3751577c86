//===- Chunks.h - The chunks of a step's ops -------------------------------===//

#ifndef TBC_PLANNER_RESHARD_CHUNKS_H
#define TBC_PLANNER_RESHARD_CHUNKS_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::reshard {

/// The number of forward ops; they come first in every graph.
int numForwardOps(const Graph &graph);

/// Returns, per op, the forward op of the same chunk (its anchor); never -1. A forward op is its
/// own anchor. A backward op has its forward op. Without one, it has the producer of the forward
/// value for its cotangent, else the earliest anchor among its operands' producers.
std::vector<int> forwardAnchors(const Graph &graph);

/// Sets the chunk of every op, where forward ops `firstOps[c]` up to the next entry are chunk c
/// (firstOps[0] = 0, ascending). A backward op has the chunk of its forward anchor.
/// Example: firstOps {0, 12} puts forward ops 0 to 11 on chunk 0 and the rest on chunk 1.
void setChunks(Graph &graph, const std::vector<int> &firstOps);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_CHUNKS_H
