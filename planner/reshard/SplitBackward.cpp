//===- SplitBackward.cpp - Splits the backward into dgrad and wgrad ---------===//

#include "planner/reshard/SplitBackward.h"

#include <algorithm>

namespace tbc::reshard {

/// Forward values that depend on an input or a state.
static std::vector<bool> dataValues(const Graph &graph) {
  std::vector<bool> isData(graph.values.size(), false);
  for (size_t value = 0; value < graph.values.size(); ++value)
    isData[value] =
        graph.values[value].producer < 0 && graph.values[value].role != ValueRole::Parameter;
  for (const GraphOp &op : graph.ops) {
    if (op.phase != Phase::Forward)
      break;
    bool fromData = false;
    for (int value : op.operands)
      fromData |= isData[value];
    for (int value : op.results)
      isData[value] = fromData;
  }
  return isData;
}

std::vector<bool> weightOps(const Graph &graph) {
  std::vector<bool> isData = dataValues(graph), canWait(graph.ops.size(), false);
  for (size_t index = graph.ops.size(); index-- > 0;) {
    const GraphOp &op = graph.ops[index];
    if (op.phase == Phase::Forward || op.generator)
      continue;
    bool waits = true;
    for (int value : op.results) {
      int primal = graph.values[value].cotangentOf;
      waits &= primal < 0 || !isData[primal];
      for (int user : graph.values[value].users)
        waits &= canWait[user] && graph.ops[user].chunk == op.chunk;
    }
    canWait[index] = waits;
  }
  // Sums of ranks pass an additive op within a block only. So it stays behind an op that makes a
  // gradient and a cotangent at once: else the gradient would be summed in every micro-batch.
  const std::vector<bool> couldWait = canWait;
  auto isOfParameters = [&](int value) {
    int primal = graph.values[value].cotangentOf;
    const std::vector<int> &users = graph.values[value].users;
    return (primal < 0 || !isData[primal]) &&
           std::all_of(users.begin(), users.end(), [&](int user) { return couldWait[user]; });
  };
  for (size_t index = 0; index < graph.ops.size(); ++index) {
    const GraphOp &op = graph.ops[index];
    auto isMadeInBackward = [&](int value) {
      int producer = graph.values[value].producer;
      return producer >= 0 && !graph.ops[producer].generator && !canWait[producer] &&
             graph.ops[producer].phase != Phase::Forward && graph.ops[producer].chunk == op.chunk &&
             isOfParameters(value);
    };
    if (op.additive && canWait[index] &&
        std::all_of(op.operands.begin(), op.operands.end(), isMadeInBackward))
      canWait[index] = false;
  }
  return canWait;
}

void splitBackward(Graph &graph) {
  std::vector<bool> canWait = weightOps(graph);
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (canWait[op])
      graph.ops[op].phase = Phase::Weight;
}

} // namespace tbc::reshard
