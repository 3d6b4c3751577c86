//===- GraphMeasures.cpp - Sizes of a graph that limit candidates ---------===//

#include "planner/search/GraphMeasures.h"
#include "planner/graph/Stages.h"
#include "planner/graph/Values.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

GraphMeasures::GraphMeasures(const Graph &graph) {
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  numPositions = std::count(mayBegin.begin(), mayBegin.end(), true);
  if (!mayBegin.empty() && !mayBegin[0])
    ++numPositions; // the first stage begins there anyway
  double batch = 1;
  for (const GraphOp &op : graph.ops)
    for (const Loop &loop : op.loops) {
      if (loop.factor == graph.batchFactor)
        batch = double(loop.size);
      else if (loop.kind != LoopKind::Fixed)
        loopSizes.push_back(loop.size);
    }
  std::sort(loopSizes.begin(), loopSizes.end());
  loopSizes.erase(std::unique(loopSizes.begin(), loopSizes.end()), loopSizes.end());
  for (const GraphValue &value : graph.values) {
    if (graph.batchFactor < 0 || !hasFactor(value.layout, graph.batchFactor))
      continue;
    const double bytes = fullBytes(value.layout) / batch;
    mostBytesPerSample = std::max(mostBytesPerSample, bytes);
    if (value.producer < 0)
      continue;
    const GraphOp &op = graph.ops[value.producer];
    if (op.phase == Phase::Forward && isMatrixClass(op.kernelClass) && op.expertLoop < 0)
      mostResultPerSample = std::max(mostResultPerSample, bytes);
  }
}

bool GraphMeasures::mayDivide(int64_t tp) const {
  return tp == 1 || std::any_of(loopSizes.begin(), loopSizes.end(),
                                [&](int64_t size) { return size % tp == 0; });
}

} // namespace tbc::planner
