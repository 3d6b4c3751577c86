//===- GraphMeasures.h - Sizes of a graph that limit candidates -----------===//

#ifndef TBC_PLANNER_SEARCH_GRAPHMEASURES_H
#define TBC_PLANNER_SEARCH_GRAPHMEASURES_H

#include "planner/reshard/Graph.h"

#include <cstdint>
#include <vector>

namespace tbc::planner {

/// Sizes measured once per graph, for limits and bounds of all candidates.
struct GraphMeasures {
  explicit GraphMeasures(const reshard::Graph &graph);

  int64_t numPositions = 0;       // where a stage may begin, the first op included
  std::vector<int64_t> loopSizes; // possibly divided by tp, each once, ascending
  double mostBytesPerSample = 0;  // of one value
  double mostResultPerSample = 0; // bytes of one matmul in forward, outside of experts

  /// Whether tp divides any loop except the batch's. Example: sizes 768 and 3072 allow tp=3, not
  /// tp=5.
  bool mayDivide(int64_t tp) const;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_GRAPHMEASURES_H
