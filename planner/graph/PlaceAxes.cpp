//===- PlaceAxes.cpp - Strategies derived from those of tp ----------------===//

#include "planner/graph/PlaceAxes.h"
#include "planner/reshard/Split.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

bool choosesForItself(const Graph &graph, int index) {
  const GraphOp &op = graph.ops[index];
  if (op.phase == Phase::Forward || op.forwardOp < 0)
    return true;
  return op.additive && op.operands.size() > 1;
}

static bool hasSeveralLoops(const GraphOp &op, FactorId factor) {
  return std::count_if(op.loops.begin(), op.loops.end(),
                       [&](const Loop &loop) { return loop.factor == factor; }) > 1;
}

bool partsQueries(const GraphOp &op, FactorId factor) {
  return hasSeveralLoops(op, factor) &&
         std::any_of(op.loops.begin(), op.loops.end(), [&](const Loop &loop) {
           return loop.factor == factor &&
                  (loop.kind == LoopKind::Fixed || loop.kind == LoopKind::Streamed);
         });
}

std::vector<OpStrategy> completeStrategies(const Graph &graph, std::vector<OpStrategy> strategies) {
  for (int op = 0; op < int(graph.ops.size()); ++op)
    if (!choosesForItself(graph, op))
      strategies[op] = inheritStrategy(graph, op, strategies);
  return strategies;
}

std::vector<OpStrategy> withExperts(const Graph &graph, const std::vector<OpStrategy> &strategies,
                                    const std::vector<AxisRef> &axes) {
  std::vector<OpStrategy> result;
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    OpStrategy base = batchStrategy(graph, op, {}, axes), both = base;
    bool fit = true;
    for (const auto &[loop, more] : strategies[op].loopAxes)
      fit &= more.empty() || trySplit(graph, op, both, loop, more);
    result.push_back(fit ? both : base);
  }
  return completeStrategies(graph, std::move(result));
}

std::string addContext(const Graph &graph, std::vector<OpStrategy> &strategies,
                       const std::vector<AxisRef> &axes, ContextForm form) {
  if (std::string why = whyNoContext(graph, groupSize(axes), form); !why.empty())
    return why;
  auto splits = [&](const OpStrategy &strategy) {
    return std::any_of(strategy.loopAxes.begin(), strategy.loopAxes.end(), [&](const auto &loop) {
      return std::any_of(axes.begin(), axes.end(),
                         [&](const AxisRef &axis) { return overlap(loop.second, axis); });
    });
  };
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    if (!choosesForItself(graph, op) || splits(strategies[op]))
      continue;
    strategies[op] = contextStrategy(graph, op, strategies[op], axes, form);
    // An op may have a split for one axis alone, but not beside another axis.
    if (!splits(strategies[op]) && splits(contextStrategy(graph, op, OpStrategy(), axes, form)) &&
        hasSeveralLoops(graph.ops[op], graph.sequenceFactor))
      return "op \"" + graph.ops[op].id + "\" (" + graph.ops[op].kind +
             ") cannot be split over cp beside the other axes: no loop of it divides by all of "
             "them; choose smaller ones, or another --context";
  }
  strategies = completeStrategies(graph, std::move(strategies));
  return "";
}

} // namespace tbc::planner
