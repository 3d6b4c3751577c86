//===- Check.cpp - Validity of an assignment for a graph ------------------===//

#include "planner/reshard/Graph.h"

#include <algorithm>

namespace tbc::reshard {

/// Whether another loop, not streamed, has `axis` too.
static bool isOnAnotherLoop(const GraphOp &op, const OpStrategy &strategy, const AxisRef &axis) {
  return std::any_of(strategy.loopAxes.begin(), strategy.loopAxes.end(), [&](const auto &entry) {
    return op.loops[entry.first].kind != LoopKind::Streamed &&
           std::count(entry.second.begin(), entry.second.end(), axis) > 0;
  });
}

static std::string whyInvalidStrategy(const Graph &graph, const Assignment &assignment, int op) {
  const GraphOp &o = graph.ops[op];
  const OpStrategy &strategy = assignment.strategies[op];
  for (const auto &[loop, axes] : strategy.loopAxes) {
    if (loop < 0 || loop >= static_cast<int>(o.loops.size()))
      return "it has no loop " + std::to_string(loop);
    const Loop &l = o.loops[loop];
    std::string what = "loop " + std::to_string(loop) + " of size " + std::to_string(l.size);
    if (l.kind == LoopKind::Fixed && groupSize(axes) > 1)
      return what + " may not be sharded";
    for (const AxisRef &axis : axes)
      if (l.kind == LoopKind::Streamed && !isOnAnotherLoop(o, strategy, axis))
        return what + " may be split over axes of another loop only";
    if (l.size % groupSize(axes) != 0)
      return what + " does not divide by " + std::to_string(groupSize(axes));
  }
  auto check = [&](int value, const Sharding &sharding) {
    const GraphValue &v = graph.values[value];
    std::string why = whyInvalid(assignment.mesh, v.layout, sharding);
    return why.empty() ? "" : "value '" + v.name + "': " + why;
  };
  std::string why;
  for (size_t k = 0; why.empty() && k < o.operands.size(); ++k)
    why = check(o.operands[k], operandSharding(graph, op, strategy, static_cast<int>(k)));
  for (size_t k = 0; why.empty() && k < o.results.size(); ++k)
    why = check(o.results[k], resultSharding(graph, op, strategy, static_cast<int>(k)));
  return why;
}

/// Activations flow to the same and later chunks in forward, cotangents to the same and earlier
/// ones. Results of the weight phase stay in their chunk.
static std::string whyInvalidChunk(const Graph &graph, const Assignment &assignment, int op) {
  const GraphOp &o = graph.ops[op];
  if (o.chunk < 0 || o.chunk >= assignment.numChunks())
    return "there is no stage " + std::to_string(o.chunk);
  auto uses = [&](int value) {
    return "it is on stage " + std::to_string(o.chunk) + " and uses '" + graph.values[value].name +
           "' of stage " + std::to_string(graph.ops[graph.values[value].producer].chunk);
  };
  for (int value : o.operands) {
    int producer = graph.values[value].producer;
    if (producer < 0 || graph.ops[producer].generator)
      continue;
    Phase phase = graph.ops[producer].phase;
    int from = graph.ops[producer].chunk;
    if (phase == Phase::Weight && (o.phase != Phase::Weight || from != o.chunk))
      return uses(value) + ", which no other block may wait for";
    if ((phase == Phase::Forward) != (o.phase == Phase::Forward))
      continue;
    if (o.phase == Phase::Forward ? from > o.chunk : from < o.chunk)
      return uses(value) + " in the same pass";
  }
  return "";
}

/// Checks that chunks lie on existing stages.
static std::string whyInvalidPlacement(const Assignment &assignment) {
  for (int stage : assignment.chunkStage)
    if (stage < 0 || stage >= assignment.numStages)
      return "a chunk lies on stage " + std::to_string(stage) + " of " +
             std::to_string(assignment.numStages);
  return "";
}

static std::string whyInvalidPlan(const Mesh &mesh, const ParameterPlan &plan) {
  if (plan.zero < 0 || plan.zero > 3)
    return "zero " + std::to_string(plan.zero) + " is not one of 0, 1, 2, 3";
  Sharding data; // any use of these axes on one tensor
  data.flat = plan.zeroAxes;
  data.flat.insert(data.flat.end(), plan.reduceAxes.begin(), plan.reduceAxes.end());
  return whyInvalid(mesh, {}, data);
}

std::string whyInvalid(const Graph &graph, const Assignment &assignment) {
  if (assignment.strategies.size() != graph.ops.size())
    return std::to_string(assignment.strategies.size()) + " strategies for " +
           std::to_string(graph.ops.size()) + " ops";
  if (assignment.parameterPlans.size() != graph.parameters.size())
    return std::to_string(assignment.parameterPlans.size()) + " parameter plans for " +
           std::to_string(graph.parameters.size()) + " parameters";
  if (std::string why = whyInvalidPlacement(assignment); !why.empty())
    return why;
  std::vector<bool> skipped(graph.ops.size());
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    for (int op : gradientParts(graph, static_cast<int>(p)).skippedAdds)
      skipped[op] = true;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    int op = static_cast<int>(i);
    if (skipped[op] || graph.ops[op].generator)
      continue;
    std::string why = whyInvalidStrategy(graph, assignment, op);
    if (why.empty())
      why = whyInvalidChunk(graph, assignment, op);
    if (!why.empty())
      return "op '" + graph.ops[op].id + "': " + why;
  }
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    if (std::string why = whyInvalidPlan(assignment.mesh, assignment.parameterPlans[p]);
        !why.empty())
      return "parameter '" + graph.values[graph.parameters[p].value].name + "': " + why;
  return "";
}

} // namespace tbc::reshard
