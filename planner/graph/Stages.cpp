//===- Stages.cpp - Pipeline stages of ops ---------------------------------===//

#include "planner/graph/Stages.h"
#include "planner/graph/Recompute.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

std::vector<bool> gradientSums(const Graph &graph) {
  std::vector<bool> sums(graph.ops.size(), false);
  for (const GraphParameter &parameter : graph.parameters) {
    std::vector<int> pending{parameter.gradient};
    while (!pending.empty()) {
      int producer = pending.back() < 0 ? -1 : graph.values[pending.back()].producer;
      pending.pop_back();
      if (producer < 0)
        continue;
      const GraphOp &op = graph.ops[producer];
      if (op.phase != Phase::Backward || !op.additive || op.operands.size() < 2)
        continue;
      sums[producer] = true;
      pending.insert(pending.end(), op.operands.begin(), op.operands.end());
    }
  }
  return sums;
}

int firstOwnOp(const Graph &graph) {
  return int(std::find_if(graph.ops.begin(), graph.ops.end(),
                          [](const GraphOp &op) { return !op.generator; }) -
             graph.ops.begin());
}

std::vector<bool> stageMayBegin(const Graph &graph) {
  std::vector<int> anchors = forwardAnchors(graph);
  std::vector<bool> sums = gradientSums(graph);
  int numForward = numForwardOps(graph);
  std::vector<int> change(numForward + 1, 0);
  auto keepTogether = [&](int first, int last) { // no stage begins after `first` up to `last`
    if (first < last) {
      ++change[first + 1];
      --change[last + 1];
    }
  };
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    if (graph.ops[op].phase != Phase::Backward || graph.ops[op].generator || sums[op])
      continue;
    for (int value : graph.ops[op].operands) {
      int producer = graph.values[value].producer;
      if (producer >= 0 && graph.ops[producer].phase == Phase::Backward &&
          !graph.ops[producer].generator)
        keepTogether(anchors[producer], anchors[op]);
    }
  }
  for (auto [input, next] : graph.stateUpdates) {
    int producer = graph.values[next].producer;
    for (int user : graph.values[input].users)
      if (producer >= 0)
        keepTogether(std::min(anchors[user], anchors[producer]),
                     std::max(anchors[user], anchors[producer]));
  }
  std::vector<bool> mayBegin(numForward);
  for (int op = 0, held = 0; op < numForward; ++op)
    mayBegin[op] = (held += change[op]) == 0 && (op == 0 || !graph.ops[op].generator);
  // Generators run in every stage with a use: no stage consists only of them.
  if (int first = firstOwnOp(graph); first > 0 && first < numForward)
    mayBegin[first] = false;
  return mayBegin;
}

std::string whyStateIsParted(const Graph &graph) {
  for (auto [input, next] : graph.stateUpdates) {
    int producer = graph.values[next].producer;
    for (int user : graph.values[input].users)
      if (producer >= 0 && graph.ops[user].chunk != graph.ops[producer].chunk)
        return "state \"" + graph.values[input].name + "\" is updated on stage " +
               std::to_string(graph.ops[producer].chunk) + " by \"" + graph.ops[producer].id +
               "\" and used on stage " + std::to_string(graph.ops[user].chunk) + " by \"" +
               graph.ops[user].id + "\"; begin the stage before both or after both";
  }
  return "";
}

} // namespace tbc::planner
