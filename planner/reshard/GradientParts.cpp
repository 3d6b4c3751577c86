//===- GradientParts.cpp - Which values add up to a gradient ---------------===//

#include "planner/reshard/Graph.h"

#include <algorithm>

namespace tbc::reshard {

/// The stage on which `value` is produced, or -1 for an input.
static int stageOf(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  return producer < 0 ? -1 : graph.ops[producer].stage;
}

/// The stages of everything that flows into `value` through additive backward ops of which it is
/// the only user.
static void collect(const Graph &graph, int value, GradientParts &parts) {
  int producer = graph.values[value].producer;
  if (producer >= 0) {
    const GraphOp &op = graph.ops[producer];
    bool joins = op.additive && op.phase == Phase::Backward && op.operands.size() == 2 &&
                 op.kind == "add" && op.operands[0] != op.operands[1];
    bool crosses = false;
    for (int operand : op.operands) {
      joins = joins && graph.values[operand].users.size() == 1;
      crosses = crosses || stageOf(graph, operand) != op.stage;
    }
    if (joins && crosses) {
      parts.skippedAdds.push_back(producer);
      for (int operand : op.operands)
        collect(graph, operand, parts);
      return;
    }
  }
  parts.parts.push_back({stageOf(graph, value), value});
}

GradientParts gradientParts(const Graph &graph, int parameter) {
  GradientParts parts;
  int gradient = graph.parameters[parameter].gradient;
  if (gradient < 0)
    return parts;
  collect(graph, gradient, parts);
  std::sort(parts.parts.begin(), parts.parts.end(), [](const auto &a, const auto &b) {
    return a.stage != b.stage ? a.stage < b.stage : a.value < b.value;
  });
  std::sort(parts.skippedAdds.begin(), parts.skippedAdds.end());
  return parts;
}

} // namespace tbc::reshard
