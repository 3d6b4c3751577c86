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

/// Whether `value` is a sum over the samples, or a sum of such sums: shares of it add up.
static bool isSumOverSamples(const Graph &graph, int value) {
  if (graph.values[size_t(value)].producer < 0)
    return false;
  const GraphOp &op = graph.ops[size_t(graph.values[size_t(value)].producer)];
  auto isSummed = [&](const Loop &loop) {
    bool reduces =
        loop.kind == LoopKind::Reduction || (loop.kind == LoopKind::Fixed && loop.isReduced);
    return reduces && loop.factor == graph.batchFactor && loop.resultDims.empty();
  };
  if (std::any_of(op.loops.begin(), op.loops.end(), isSummed))
    return true;
  return op.additive && !op.operands.empty() &&
         std::all_of(op.operands.begin(), op.operands.end(),
                     [&](int operand) { return isSumOverSamples(graph, operand); });
}

int firstMeeting(const Graph &graph) {
  auto isOverBatch = [&](const Loop &loop) { return loop.factor == graph.batchFactor; };
  for (size_t op = 0; op < graph.ops.size() && graph.batchFactor >= 0; ++op)
    if (std::count_if(graph.ops[op].loops.begin(), graph.ops[op].loops.end(), isOverBatch) > 1)
      return int(op);
  if (graph.batchFactor >= 0 && graph.loss >= 0 && !isSumOverSamples(graph, graph.loss))
    return graph.values[size_t(graph.loss)].producer;
  return -1;
}

} // namespace tbc::reshard
