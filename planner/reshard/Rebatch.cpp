//===- Rebatch.cpp - The same graph for another batch ----------------------===//

#include "planner/reshard/Rebatch.h"

#include <algorithm>

namespace tbc::reshard {

Graph withBatch(const Graph &graph, int64_t batch) {
  Graph result = graph;
  if (graph.batchFactor < 0)
    return result;
  for (GraphValue &value : result.values)
    for (DimLayout &dim : value.layout.dims)
      for (Segment &segment : dim.segments)
        for (Factor &factor : segment.factors)
          if (factor.id == graph.batchFactor)
            factor.size = batch;
  for (GraphOp &op : result.ops) {
    for (Loop &loop : op.loops) {
      if (loop.factor != graph.batchFactor || loop.size == batch)
        continue;
      op.flops *= double(batch) / double(loop.size);
      loop.size = batch;
    }
  }
  return result;
}

int firstMeeting(const Graph &graph) {
  auto isOverBatch = [&](const Loop &loop) { return loop.factor == graph.batchFactor; };
  for (size_t op = 0; op < graph.ops.size() && graph.batchFactor >= 0; ++op)
    if (std::count_if(graph.ops[op].loops.begin(), graph.ops[op].loops.end(), isOverBatch) > 1)
      return int(op);
  return -1;
}

} // namespace tbc::reshard
