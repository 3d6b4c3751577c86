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

/// Returns the recomputed forward ops: the flagged ops (one flag per op) whose results are read by
/// a backward op of the same chunk or by another recomputed op. Ascending.
std::vector<int> reexecutedOps(const Graph &graph, const std::vector<bool> &recompute);

/// An op in the order with clones: op `source` of the original graph, or its clone.
struct ClonedOp {
  int source = -1;
  bool isClone = false;
};

/// Returns the ops of `graph` in order, with a clone of every recomputed op right before the first
/// backward op that needs it, directly or through other clones. Clones at one position keep the
/// order of their forward ops. Example: bwd reads C = f(B), B = g(A), and B and C are flagged: the
/// clones B', C' stand before bwd, and B' reads A.
std::vector<ClonedOp> recomputeOrder(const Graph &graph, const std::vector<bool> &recompute);

/// Returns `graph` with its ops in `order`. Ids and value names of clones end in ".recompute".
/// Forward ops and all values keep their indices; values of clones follow. An op after a clone
/// reads the clone's results instead of the original's. Per op of the result, `cloneOf` receives
/// the forward op of a clone, or -1, and `sourceOf` the original op of `graph`.
Graph withClones(const Graph &graph, const std::vector<ClonedOp> &order,
                 std::vector<int> *cloneOf = nullptr, std::vector<int> *sourceOf = nullptr);

/// withClones in recomputeOrder.
Graph withRecompute(const Graph &graph, const std::vector<bool> &recompute,
                    std::vector<int> *cloneOf = nullptr, std::vector<int> *sourceOf = nullptr);

/// The suffix of the ids of clones.
inline constexpr const char *cloneSuffix = ".recompute";

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_RECOMPUTE_H
