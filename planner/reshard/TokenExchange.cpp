//===- TokenExchange.cpp - Tokens that travel to their experts ------------===//

#include "planner/reshard/TokenExchange.h"

#include <algorithm>

namespace tbc::reshard {

ExpertRows expertRows(const GraphOp &op, const OpStrategy &strategy) {
  ExpertRows rows;
  if (op.routing.copies == 0)
    return rows;
  const auto axes = strategy.loopAxes.find(op.routing.experts);
  if (axes == strategy.loopAxes.end())
    return rows;
  rows.axes = axes->second;
  rows.share = double(op.routing.copies) / op.routing.divisor(groupSize(rows.axes));
  return rows;
}

int64_t keptRowBytes(const Graph &graph, int op, const OpStrategy &strategy, int operand,
                     int64_t bytes) {
  const GraphOp &o = graph.ops[size_t(op)];
  const auto split = strategy.loopAxes.find(o.routing.innerLoop);
  const int64_t parts = split == strategy.loopAxes.end() ? 1 : groupSize(split->second);
  const int64_t inner = o.routing.inner * o.loops[size_t(o.routing.innerLoop)].size / parts;
  const DimLayout &width = graph.values[size_t(o.operands[size_t(operand)])].layout.dims.back();
  const int64_t copy = bytes + bytes * inner / width.numElements();
  const int64_t ranks = groupSize(expertRows(o, strategy).axes);
  return int64_t(double(o.routing.copies * copy * ranks) / o.routing.divisor(ranks));
}

bool hasRoutedRows(const GraphOp &op, bool isResult, int tensor) {
  if (op.routing.copies == 0)
    return false;
  const Loop &experts = op.loops[size_t(op.routing.experts)];
  const std::vector<TensorDim> &dims = isResult ? experts.resultDims : experts.operandDims;
  return std::none_of(dims.begin(), dims.end(),
                      [&](const TensorDim &dim) { return dim.tensor == tensor; });
}

/// Returns the axes of `all` that are not in `some`; nothing if `all` lacks one of those.
static std::optional<std::vector<AxisRef>> without(const std::vector<AxisRef> &all,
                                                   const std::vector<AxisRef> &some) {
  std::vector<AxisRef> rest;
  size_t found = 0;
  for (const AxisRef &axis : all)
    if (std::find(some.begin(), some.end(), axis) == some.end())
      rest.push_back(axis);
    else
      ++found;
  if (some.empty() || found < some.size())
    return std::nullopt;
  return rest;
}

bool exchangeTokens(std::vector<Collective> &steps, const ExpertRows &rows) {
  std::vector<Collective> changed;
  bool isChanged = false;
  for (Collective &step : steps) {
    const bool isGather = step.kind == CollectiveKind::AllGather;
    const bool isSum = step.kind == CollectiveKind::ReduceScatter;
    std::optional<std::vector<AxisRef>> rest;
    if (isGather || isSum)
      rest = without(step.axes, rows.axes);
    if (!rest) {
      changed.push_back(std::move(step));
      continue;
    }
    isChanged = true;
    Collective exchange, beside = step;
    beside.axes = std::move(*rest);
    beside.bytes = int64_t(double(step.bytes) * rows.share);
    exchange.kind = CollectiveKind::AllToAll;
    exchange.axes = rows.axes;
    exchange.tokens = isGather ? TokenWay::Out : TokenWay::Back;
    exchange.share = rows.share;
    exchange.bytes = beside.bytes / groupSize(beside.axes);
    if (isSum && !beside.axes.empty())
      changed.push_back(beside);
    changed.push_back(std::move(exchange));
    if (isGather && !beside.axes.empty())
      changed.push_back(std::move(beside));
  }
  steps = std::move(changed);
  return isChanged;
}

} // namespace tbc::reshard
