//===- GradientParts.cpp - The summands of a gradient ---------------------===//

#include "planner/reshard/Graph.h"

#include <algorithm>

namespace tbc::reshard {

/// Returns the chunk of the producer of `value`, or -1 for an input.
static int chunkOf(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  return producer < 0 ? -1 : graph.ops[producer].chunk;
}

/// Whether `value` is a pure sum: the result of a backward op that adds two values, and is their
/// only user.
static bool isJoin(const Graph &graph, int value) {
  int producer = graph.values[value].producer;
  if (producer < 0)
    return false;
  const GraphOp &op = graph.ops[producer];
  return op.function == ElementFunction::Sum && op.phase != Phase::Forward &&
         op.operands[0] != op.operands[1] &&
         std::all_of(op.operands.begin(), op.operands.end(),
                     [&](int operand) { return graph.values[operand].users.size() == 1; });
}

/// Whether `value` or any summand joined to it is produced in another chunk than `chunk`. Follows
/// chains of joins, because a weight with many uses has a chain.
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

/// Collects the summands of `value` with their chunks, through joins across chunks.
static void collect(const Graph &graph, int value, GradientParts &parts) {
  int producer = graph.values[value].producer;
  parts.skippedAdds.push_back(producer);
  for (int operand : graph.ops[producer].operands) {
    int chunk = chunkOf(graph, operand);
    // The gradient of another parameter must be complete.
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
  // A gradient that is also another value's cotangent must be complete.
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
