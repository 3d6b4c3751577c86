//===- Strategies.cpp - Possible axes on the loops of an op ---------------===//

#include "planner/reshard/Split.h"

#include <algorithm>
#include <numeric>

namespace tbc::reshard {

//===----------------------------------------------------------------------===//
// From loops to shardings
//===----------------------------------------------------------------------===//

static const std::vector<AxisRef> &axesOn(const OpStrategy &strategy, int loop) {
  static const std::vector<AxisRef> none;
  auto it = strategy.loopAxes.find(loop);
  return it == strategy.loopAxes.end() ? none : it->second;
}

/// Adds the entries for the dims of tensor number `tensor`. Returns whether there are any.
static bool addDims(const std::vector<TensorDim> &dims, int tensor, FactorId factor,
                    const std::vector<AxisRef> &axes, Sharding &sharding) {
  bool found = false;
  for (const TensorDim &dim : dims) {
    if (dim.tensor != tensor)
      continue;
    found = true;
    sharding.factors.push_back({dim.dim, factor, axes});
  }
  return found;
}

Sharding operandSharding(const Graph &graph, int op, const OpStrategy &strategy, int operand) {
  Sharding sharding;
  for (const auto &[loop, axes] : strategy.loopAxes) {
    const Loop &l = graph.ops[op].loops[loop];
    addDims(l.operandDims, operand, l.factor, axes, sharding);
  }
  normalize(sharding);
  return sharding;
}

/// Whether result `result` has a dim along a streamed loop that `axis` splits.
static bool streamsOver(const GraphOp &op, const OpStrategy &strategy, int result,
                        const AxisRef &axis) {
  return std::any_of(strategy.loopAxes.begin(), strategy.loopAxes.end(), [&](const auto &entry) {
    const Loop &loop = op.loops[entry.first];
    return loop.kind == LoopKind::Streamed && overlap(entry.second, axis) &&
           std::any_of(loop.resultDims.begin(), loop.resultDims.end(),
                       [&](const TensorDim &dim) { return dim.tensor == result; });
  });
}

Sharding resultSharding(const Graph &graph, int op, const OpStrategy &strategy, int result) {
  Sharding sharding;
  for (const auto &[loop, axes] : strategy.loopAxes) {
    const Loop &l = graph.ops[op].loops[loop];
    bool runsThrough = addDims(l.resultDims, result, l.factor, axes, sharding);
    if (runsThrough || (l.kind != LoopKind::Reduction && l.kind != LoopKind::Max))
      continue;
    ReduceKind kind = l.kind == LoopKind::Max ? ReduceKind::Max : ReduceKind::Sum;
    // A result that circulates with the blocks is summed on the way.
    for (const AxisRef &axis : axes)
      if (!streamsOver(graph.ops[op], strategy, result, axis))
        sharding.partial.push_back({axis, kind});
  }
  normalize(sharding);
  return sharding;
}

std::vector<std::vector<int64_t>> localOperandShapes(const Graph &graph, int op,
                                                     const OpStrategy &strategy) {
  const GraphOp &graphOp = graph.ops[size_t(op)];
  std::vector<std::vector<int64_t>> shapes;
  for (int value : graphOp.operands)
    shapes.push_back(graph.values[size_t(value)].layout.shape());
  for (const auto &[loop, axes] : strategy.loopAxes)
    for (const TensorDim &place : graphOp.loops[size_t(loop)].operandDims) {
      int64_t &size = shapes[size_t(place.tensor)][size_t(place.dim)];
      int64_t parts = groupSize(axes);
      size = (size + parts - 1) / parts;
    }
  return shapes;
}

//===----------------------------------------------------------------------===//
// Ordinary strategies
//===----------------------------------------------------------------------===//

/// Whether a factor with `id` is in each segment of the dim just once and `n` divides it.
static bool canSplit(const DimLayout &dim, FactorId id, int64_t n) {
  for (const Segment &segment : dim.segments)
    if (std::count_if(segment.factors.begin(), segment.factors.end(),
                      [&](const Factor &f) { return f.id == id && f.size % n == 0; }) != 1)
      return false;
  return !dim.segments.empty();
}

/// Whether each axis is used once in `sharding` and every factor of `layout` can be split this way.
static bool isPossible(const TensorLayout &layout, const Sharding &sharding) {
  std::vector<AxisRef> axes = usedAxes(sharding);
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (overlap(axes[i], axes[j]))
        return false;
  for (const Partial &p : sharding.partial)
    if (p.kind != sharding.partial.front().kind)
      return false;
  return std::all_of(sharding.factors.begin(), sharding.factors.end(), [&](const auto &f) {
    return canSplit(layout.dims[f.dim], f.factor, groupSize(f.axes));
  });
}

/// Whether loop `loop` is not streamed, or all its axes are also on another loop.
static bool mayStream(const GraphOp &op, const OpStrategy &strategy, int loop) {
  if (op.loops[loop].kind != LoopKind::Streamed)
    return true;
  const std::vector<AxisRef> &axes = axesOn(strategy, loop);
  return std::all_of(axes.begin(), axes.end(), [&](const AxisRef &axis) {
    return std::any_of(strategy.loopAxes.begin(), strategy.loopAxes.end(), [&](const auto &entry) {
      return op.loops[entry.first].kind != LoopKind::Streamed &&
             std::count(entry.second.begin(), entry.second.end(), axis) > 0;
    });
  });
}

/// Whether `strategy` has axes on a loop with a dim of tensor number `tensor`, by `dims`.
static bool isTouched(const GraphOp &op, const OpStrategy &strategy,
                      std::vector<TensorDim> Loop::*dims, int tensor) {
  return std::any_of(strategy.loopAxes.begin(), strategy.loopAxes.end(), [&](const auto &entry) {
    const std::vector<TensorDim> &list = op.loops[entry.first].*dims;
    return std::any_of(list.begin(), list.end(),
                       [&](const TensorDim &dim) { return dim.tensor == tensor; });
  });
}

/// Whether loop sizes, streamed loops, and the shardings of all operands and results allow
/// `strategy`.
static bool isPossible(const Graph &graph, int op, const OpStrategy &strategy) {
  const GraphOp &o = graph.ops[op];
  for (const auto &[loop, axes] : strategy.loopAxes)
    if (o.loops[loop].size % groupSize(axes) != 0 || !mayStream(o, strategy, loop))
      return false;
  for (size_t i = 0; i < o.operands.size(); ++i)
    if (isTouched(o, strategy, &Loop::operandDims, static_cast<int>(i)) &&
        !isPossible(graph.values[o.operands[i]].layout,
                    operandSharding(graph, op, strategy, static_cast<int>(i))))
      return false;
  for (size_t i = 0; i < o.results.size(); ++i)
    if (!isPossible(graph.values[o.results[i]].layout,
                    resultSharding(graph, op, strategy, static_cast<int>(i))))
      return false;
  return true;
}

bool trySplit(const Graph &graph, int op, OpStrategy &strategy, int loop,
              const std::vector<AxisRef> &axes, bool inFront) {
  const GraphOp &o = graph.ops[op];
  if (o.generator || o.loops[loop].kind == LoopKind::Fixed || axes.empty())
    return false;
  const auto [entry, isNew] = strategy.loopAxes.try_emplace(loop);
  std::vector<AxisRef> &on = entry->second;
  const auto added = on.insert(inFront ? on.begin() : on.end(), axes.begin(), axes.end());
  if (isPossible(graph, op, strategy))
    return true;
  on.erase(added, added + static_cast<std::ptrdiff_t>(axes.size()));
  if (isNew)
    strategy.loopAxes.erase(entry);
  return false;
}

std::vector<OpStrategy> enumerateStrategies(const Graph &graph, int op, const OpStrategy &base,
                                            const AxisRef &axis) {
  std::vector<OpStrategy> result = {base};
  const GraphOp &o = graph.ops[op];
  for (size_t loop = 0; loop < o.loops.size() && axis.size > 1; ++loop) {
    OpStrategy next = base;
    if (!trySplit(graph, op, next, static_cast<int>(loop), {axis}))
      continue;
    next.tag = "loop:" + std::to_string(o.loops[loop].factor);
    result.push_back(std::move(next));
  }
  return result;
}

OpStrategy batchStrategy(const Graph &graph, int op, const std::vector<AxisRef> &dataAxes,
                         const std::vector<AxisRef> &expertAxes) {
  OpStrategy strategy;
  strategy.tag = "batch";
  int expertLoop = graph.ops[op].expertLoop;
  std::vector<AxisRef> axes = dataAxes;
  if (expertLoop < 0 || !trySplit(graph, op, strategy, expertLoop, expertAxes))
    axes.insert(axes.end(), expertAxes.begin(), expertAxes.end());
  const std::vector<Loop> &loops = graph.ops[op].loops;
  for (size_t loop = 0; loop < loops.size(); ++loop)
    if (loops[loop].factor == graph.batchFactor)
      trySplit(graph, op, strategy, static_cast<int>(loop), axes);
  return strategy;
}

Graph withExpertImbalance(Graph graph, double imbalance) {
  for (GraphOp &op : graph.ops)
    if (op.routing.copies > 0)
      op.routing.imbalance = imbalance;
  return graph;
}

bool routesTokens(const Graph &graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const GraphOp &op) { return op.routing.copies > 0; });
}

int64_t commonExperts(const Graph &graph) {
  int64_t common = 0;
  for (const GraphOp &op : graph.ops) {
    if (op.expertLoop < 0)
      continue;
    const Loop &loop = op.loops[op.expertLoop];
    common = std::gcd(common, loop.kind == LoopKind::Fixed ? 1 : loop.size);
  }
  return std::max<int64_t>(common, 1);
}

//===----------------------------------------------------------------------===//
// Backward ops
//===----------------------------------------------------------------------===//

static int indexOf(const std::vector<int> &values, int value) {
  auto it = std::find(values.begin(), values.end(), value);
  return it == values.end() ? -1 : static_cast<int>(it - values.begin());
}

static int loopAt(const std::vector<Loop> &loops, std::vector<TensorDim> Loop::*dims,
                  FactorId factor, int tensor, int dim) {
  for (size_t i = 0; i < loops.size(); ++i)
    for (const TensorDim &d : loops[i].*dims)
      if (loops[i].factor == factor && d.tensor == tensor && d.dim == dim)
        return static_cast<int>(i);
  return -1;
}

/// Returns the loop of forward op `op` that runs factor `factor` through dim `dim` of `value`, as
/// an operand, a result, or the cotangent of either; -1 without one.
static int forwardLoop(const Graph &graph, const GraphOp &op, int value, int dim, FactorId factor) {
  for (int v : {value, graph.values[value].cotangentOf}) {
    if (v < 0)
      continue;
    if (int i = indexOf(op.operands, v); i >= 0)
      if (int loop = loopAt(op.loops, &Loop::operandDims, factor, i, dim); loop >= 0)
        return loop;
    if (int i = indexOf(op.results, v); i >= 0)
      if (int loop = loopAt(op.loops, &Loop::resultDims, factor, i, dim); loop >= 0)
        return loop;
  }
  return -1;
}

static int forwardLoop(const Graph &graph, const GraphOp &forward, const GraphOp &backward,
                       const Loop &loop) {
  for (const TensorDim &d : loop.operandDims)
    if (int f = forwardLoop(graph, forward, backward.operands[d.tensor], d.dim, loop.factor);
        f >= 0)
      return f;
  for (const TensorDim &d : loop.resultDims)
    if (int f = forwardLoop(graph, forward, backward.results[d.tensor], d.dim, loop.factor); f >= 0)
      return f;
  int only = -1;
  for (size_t i = 0; i < forward.loops.size(); ++i) {
    if (forward.loops[i].factor != loop.factor)
      continue;
    if (only >= 0)
      return -1;
    only = static_cast<int>(i);
  }
  return only;
}

static bool isStreamed(const Loop &loop) { return loop.kind == LoopKind::Streamed; }

/// If queries and keys are the same value, it does not distinguish their loops. The streamed loop
/// is the keys'.
static int loopLike(const GraphOp &forward, const Loop &loop) {
  for (size_t i = 0; i < forward.loops.size(); ++i)
    if (forward.loops[i].factor == loop.factor && isStreamed(forward.loops[i]) == isStreamed(loop))
      return static_cast<int>(i);
  return -1;
}

OpStrategy inheritStrategy(const Graph &graph, int backwardOp,
                           const std::vector<OpStrategy> &strategies) {
  const GraphOp &backward = graph.ops[backwardOp];
  OpStrategy result;
  if (backward.forwardOp < 0)
    return result;
  const GraphOp &forward = graph.ops[backward.forwardOp];
  const OpStrategy &strategy = strategies[backward.forwardOp];
  result.tag = strategy.tag;
  for (size_t i = 0; i < backward.loops.size(); ++i) {
    int loop = forwardLoop(graph, forward, backward, backward.loops[i]);
    if (loop >= 0 && isStreamed(forward.loops[loop]) != isStreamed(backward.loops[i]))
      loop = loopLike(forward, backward.loops[i]);
    if (loop >= 0)
      trySplit(graph, backwardOp, result, static_cast<int>(i), axesOn(strategy, loop));
  }
  return result;
}

} // namespace tbc::reshard
