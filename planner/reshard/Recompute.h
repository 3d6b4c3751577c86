//===- Recompute.h - Clones of forward ops in the backward -----------------===//
//
// Plain C++. Recomputation (activation checkpointing) on the step's graph: the search and the pass
// tbc-recompute share these functions, so that both make the same clones in the same places.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_RECOMPUTE_H
#define TBC_PLANNER_RESHARD_RECOMPUTE_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::reshard {

/// The forward ops that the backward executes again: those flagged (one flag per op) whose results
/// a backward op of the same chunk reads, and, through them, those that they read. Ascending.
std::vector<int> reexecutedOps(const Graph &graph, const std::vector<bool> &recompute);

/// An op of a graph with clones: op `source` of the graph without them, or its clone.
struct ClonedOp {
  int source = -1;
  bool isClone = false;
};

/// The ops of `graph` in order, with a clone of every re-executed op right before the first
/// backward op that needs it, directly or through other clones. Clones at one place stand in the
/// order of their forward ops. Example: bwd reads C = f(B), B = g(A), and B and C are flagged: the
/// clones B', C' stand before bwd, and B' reads A.
std::vector<ClonedOp> recomputeOrder(const Graph &graph, const std::vector<bool> &recompute);

/// `graph` with its ops as `order` says. Ids and value names of clones end in ".recompute";
/// forward ops and all values keep their numbers, values of clones follow. An op that stands after
/// a clone reads its results instead of the original's. `cloneOf` receives, per op of the result,
/// the forward op that it is a clone of, or -1; `sourceOf` the op of `graph` that it was.
Graph withClones(const Graph &graph, const std::vector<ClonedOp> &order,
                 std::vector<int> *cloneOf = nullptr, std::vector<int> *sourceOf = nullptr);

/// withClones in recomputeOrder.
Graph withRecompute(const Graph &graph, const std::vector<bool> &recompute,
                    std::vector<int> *cloneOf = nullptr, std::vector<int> *sourceOf = nullptr);

/// What the ids of clones end in.
inline constexpr const char *cloneSuffix = ".recompute";

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_RECOMPUTE_H
