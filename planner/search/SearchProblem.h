//===- SearchProblem.h - The inputs of a search ---------------------------===//

#ifndef TBC_PLANNER_SEARCH_SEARCHPROBLEM_H
#define TBC_PLANNER_SEARCH_SEARCHPROBLEM_H

#include "planner/devices/Cluster.h"
#include "planner/graph/Fold.h"
#include "planner/pins/OpPins.h"
#include "planner/pins/Space.h"
#include "planner/search/GraphMeasures.h"

#include <array>
#include <cstdint>
#include <vector>

namespace tbc::planner {

/// The inputs of a search, and the facts of the graph used by every candidate. It never changes,
/// so all threads read it. The references outlive it.
struct SearchProblem {
  SearchProblem(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                const Space &space, int64_t limitBytes, PinnedOps pinned);

  const reshard::Graph &graph;
  const Job &job;
  const Cluster &cluster;
  const Space &space;
  const int64_t limitBytes; // memory limit of the device type with the largest one
  const PinnedOps pinned;

  const bool isMixed; // the cluster has several device types
  const Repeat repeat;
  const GraphMeasures measures;
  const int numForward; // ops
  /// The only ops that may begin a stage after the first; empty: any that stageMayBegin() allows.
  const std::vector<int> stageBegins;
  const std::vector<int> blockBegins; // by graph block that may be recomputed: its first op
  /// Bytes of all parameters with readers: [0] those whole on every rank along ep, [1] of experts.
  const std::array<double, 2> parameterBytes;

  /// The number of graph blocks that may be recomputed or kept.
  int64_t numBlocks() const { return int64_t(blockBegins.size()); }
  /// Whether sequences over `cp` ranks are in zigzag order. If the order is open: whether zigzag
  /// saves work (some matmul kernel skips masked parts) and is possible.
  bool takesZigzag(int64_t cp) const;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SEARCHPROBLEM_H
