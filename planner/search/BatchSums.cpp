//===- BatchSums.cpp - Sums over the samples of a micro-batch -------------===//

#include "planner/search/BatchSums.h"
#include "planner/graph/Stages.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

/// Whether `result` of `op` is a sum or maximum over the samples.
static bool isOverBatch(const GraphOp &op, int result, FactorId batch) {
  return std::any_of(op.loops.begin(), op.loops.end(), [&](const Loop &loop) {
    bool reduces = loop.kind == LoopKind::Reduction || loop.kind == LoopKind::Max;
    return reduces && loop.factor == batch &&
           std::none_of(loop.resultDims.begin(), loop.resultDims.end(),
                        [&](const TensorDim &dim) { return dim.tensor == result; });
  });
}

std::vector<BatchSum> batchSums(const Graph &graph) {
  std::vector<bool> isPartial(graph.values.size(), false), addsUp(graph.ops.size(), false);
  for (int index = 0; index < int(graph.ops.size()); ++index) {
    const GraphOp &op = graph.ops[index];
    if (op.generator)
      continue;
    addsUp[index] = op.additive && !op.operands.empty() &&
                    std::all_of(op.operands.begin(), op.operands.end(), [&](int operand) {
                      const GraphValue &value = graph.values[operand];
                      return isPartial[operand] && graph.ops[value.producer].phase == op.phase &&
                             std::all_of(value.users.begin(), value.users.end(),
                                         [&](int user) { return user == index; });
                    });
    for (int result = 0; result < int(op.results.size()); ++result)
      isPartial[op.results[result]] = addsUp[index] || isOverBatch(op, result, graph.batchFactor);
  }
  std::vector<BatchSum> sums;
  const std::vector<int> anchors = forwardAnchors(graph);
  for (size_t value = 0; value < graph.values.size(); ++value) {
    const GraphValue &of = graph.values[value];
    if (isPartial[value] && !of.users.empty() && !addsUp[of.users[0]])
      sums.push_back({anchors[of.producer], graph.ops[of.producer].phase == Phase::Forward,
                      double(of.layout.numElements() * of.layout.elementBytes)});
  }
  return sums;
}

} // namespace tbc::planner
