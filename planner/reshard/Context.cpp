//===- Context.cpp - Context parallelism: split sequences -----------------===//

#include "planner/reshard/Split.h"

#include <algorithm>

namespace tbc::reshard {

const char *name(ContextForm form) {
  switch (form) {
  case ContextForm::Ring:
    return "ring";
  case ContextForm::AllGather:
    return "all-gather";
  case ContextForm::AllToAll:
    return "all-to-all";
  }
  return "unknown";
}

std::optional<ContextForm> parseContextForm(const std::string &text) {
  for (ContextForm form : {ContextForm::Ring, ContextForm::AllGather, ContextForm::AllToAll})
    if (text == name(form))
      return form;
  return std::nullopt;
}

/// The loops of `op` over the sequence.
static std::vector<int> sequenceLoops(const Graph &graph, const GraphOp &op) {
  std::vector<int> loops;
  for (size_t i = 0; i < op.loops.size(); ++i)
    if (op.loops[i].factor == graph.sequenceFactor)
      loops.push_back(static_cast<int>(i));
  return loops;
}

OpStrategy contextStrategy(const Graph &graph, int op, const OpStrategy &strategy,
                           const std::vector<AxisRef> &axes, ContextForm form) {
  const GraphOp &o = graph.ops[op];
  OpStrategy result = strategy;
  std::vector<int> loops = sequenceLoops(graph, o);
  if (loops.size() > 1 && form == ContextForm::AllToAll) {
    for (size_t i = 0; i < o.loops.size(); ++i)
      if (o.loops[i].kind == LoopKind::Parallel && o.loops[i].factor != graph.sequenceFactor &&
          o.loops[i].factor != graph.batchFactor &&
          trySplit(graph, op, result, static_cast<int>(i), axes, /*inFront=*/false))
        break;
    return result;
  }
  // One loop takes the axes; parallel loops go before summed ones.
  bool isSplit = false;
  for (LoopKind kind : {LoopKind::Parallel, LoopKind::Reduction, LoopKind::Max})
    for (int loop : loops)
      if (!isSplit && o.loops[loop].kind == kind)
        isSplit = trySplit(graph, op, result, loop, axes, /*inFront=*/true);
  for (int loop : loops)
    if (isSplit && form == ContextForm::Ring && o.loops[loop].kind == LoopKind::Streamed)
      trySplit(graph, op, result, loop, axes, /*inFront=*/true);
  return result;
}

std::string whyNoContext(const Graph &graph, int64_t parts, ContextForm form) {
  if (graph.sequenceFactor < 0)
    return "the inputs of the model have no sequence dim of their own that could be split";
  auto cannot = [&](const GraphOp &op, const std::string &why) {
    return "op \"" + op.id + "\" (" + op.kind + ") " + why;
  };
  std::vector<AxisRef> axes = {{0, 1, parts}};
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const GraphOp &op = graph.ops[i];
    std::vector<int> loops = sequenceLoops(graph, op);
    if (loops.empty() || op.generator || op.phase != Phase::Forward)
      continue;
    if (op.loops[loops[0]].size % parts != 0)
      return "the sequence has " + std::to_string(op.loops[loops[0]].size) +
             " tokens, which do not divide by " + std::to_string(parts) +
             "; choose --seq accordingly";
    if (loops.size() == 1)
      continue;
    OpStrategy strategy = contextStrategy(graph, static_cast<int>(i), {}, axes, form);
    auto isFixed = [&](int loop) { return op.loops[loop].kind == LoopKind::Fixed; };
    if (form == ContextForm::AllToAll && strategy.loopAxes.empty())
      return cannot(op, "has no loop beside the sequence, such as heads, that divides by " +
                            std::to_string(parts) +
                            "; use --context ring or all-gather, or fewer ranks");
    if (form == ContextForm::Ring && std::any_of(loops.begin(), loops.end(), isFixed))
      return cannot(op, "cannot take the sequence block by block, because what it does with rows "
                        "that have nothing to read depends on all of it; use --context all-gather "
                        "or all-to-all");
  }
  return "";
}

int64_t streamedBlocks(const Graph &graph, int op, const OpStrategy &strategy) {
  int64_t blocks = 1;
  for (const auto &[loop, axes] : strategy.loopAxes)
    if (graph.ops[op].loops[loop].kind == LoopKind::Streamed)
      blocks *= groupSize(axes);
  return blocks;
}

std::vector<Collective> ringCollectives(const Graph &graph, int op, const OpStrategy &strategy) {
  std::vector<Collective> steps;
  const GraphOp &o = graph.ops[op];
  for (const auto &entry : strategy.loopAxes) {
    const Loop &loop = o.loops[entry.first];
    const std::vector<AxisRef> &axes = entry.second;
    int64_t blocks = groupSize(axes);
    if (loop.kind != LoopKind::Streamed || blocks == 1)
      continue;
    auto add = [&](int value, const Sharding &sharding, int64_t times) {
      Collective step;
      step.kind = CollectiveKind::Permute;
      step.axes = axes;
      step.bytes = localBytes(graph.values[value].layout, sharding);
      steps.insert(steps.end(), times, step);
    };
    for (const TensorDim &dim : loop.operandDims) {
      int value = o.operands[dim.tensor], producer = graph.values[value].producer;
      if (producer < 0 || !graph.ops[producer].generator)
        add(value, operandSharding(graph, op, strategy, dim.tensor), blocks - 1);
    }
    for (const TensorDim &dim : loop.resultDims)
      add(o.results[dim.tensor], resultSharding(graph, op, strategy, dim.tensor), blocks);
  }
  return steps;
}

} // namespace tbc::reshard
