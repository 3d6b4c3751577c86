//===- GradientParts.cpp - Which values add up to a gradient ---------------===//

#include "planner/reshard/Graph.h"

#include <algorithm>

namespace tbc::reshard {

/// The chunk in which `value` is produced, or -1 for an input.
static int chunkOf(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  return producer < 0 ? -1 : graph.ops[producer].chunk;
}

/// Whether `value` only joins others: an additive backward op is their only user.
static bool isJoin(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  if (producer < 0)
    return false;
  const GraphOp &op = graph.ops[producer];
  return op.additive && op.phase != Phase::Forward && op.operands.size() == 2 && op.kind == "add" &&
         op.operands[0] != op.operands[1] &&
         std::all_of(op.operands.begin(), op.operands.end(),
                     [&](int operand) { return graph.values[operand].users.size() == 1; });
}

/// Whether anything that is joined to `value` is made in another chunk than `chunk`: not the
/// operands alone, for a weight that is used often has a chain of joins.
static bool crosses(const Graph &graph, int value, int chunk) {
  if (chunkOf(graph, value) != chunk)
    return true;
  if (!isJoin(graph, value))
    return false;
  const GraphOp &op = graph.ops[graph.values[value].producer];
  return std::any_of(op.operands.begin(), op.operands.end(),
                     [&](int operand) { return crosses(graph, operand, chunk); });
}

static bool isGradient(const Graph &graph, int value) {
  return std::any_of(graph.parameters.begin(), graph.parameters.end(),
                     [&](const GraphParameter &parameter) { return parameter.gradient == value; });
}

/// The chunks of everything that flows into `value` through joins across chunks.
static void collect(const Graph &graph, int value, GradientParts &parts) {
  int producer = graph.values[value].producer;
  parts.skippedAdds.push_back(producer);
  for (int operand : graph.ops[producer].operands) {
    int chunk = chunkOf(graph, operand);
    // One that is the gradient of another parameter has to be there whole.
    if (isJoin(graph, operand) && crosses(graph, operand, chunk) && !isGradient(graph, operand))
      collect(graph, operand, parts);
    else
      parts.parts.push_back({chunk, operand});
  }
}

GradientParts gradientParts(const Graph &graph, int parameter) {
  GradientParts parts;
  int gradient = graph.parameters[parameter].gradient;
  if (gradient < 0)
    return parts;
  // One that is the cotangent of something else too is wanted whole.
  int chunk = chunkOf(graph, gradient);
  if (isJoin(graph, gradient) && crosses(graph, gradient, chunk) &&
      graph.values[gradient].users.empty())
    collect(graph, gradient, parts);
  else
    parts.parts.push_back({chunk, gradient});
  std::sort(parts.parts.begin(), parts.parts.end(), [](const auto &a, const auto &b) {
    return a.chunk != b.chunk ? a.chunk < b.chunk : a.value < b.value;
  });
  std::sort(parts.skippedAdds.begin(), parts.skippedAdds.end());
  return parts;
}

} // namespace tbc::reshard
