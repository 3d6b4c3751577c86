//===- OpPlacement.cpp - The split of an op, in terms of its tensors ------===//

#include "planner/plan/OpPlacement.h"
#include "planner/plan/Plan.h"
#include "planner/support/Format.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

//===----------------------------------------------------------------------===//
// From loops to tensors
//===----------------------------------------------------------------------===//

/// Returns the position of `factor` in the first segment of `dim`, or -1. A factor that is split is
/// in every segment (reshard::whyInvalid).
static int positionOf(const DimLayout &dim, FactorId factor) {
  if (dim.segments.empty())
    return -1;
  const std::vector<Factor> &factors = dim.segments.front().factors;
  for (size_t i = 0; i < factors.size(); ++i)
    if (factors[i].id == factor)
      return int(i);
  return -1;
}

static void splitDim(const DimLayout &layout, FactorId factor, const AxisNames &axes,
                     DimAxes &dim) {
  const int position = positionOf(layout, factor);
  if (position < 0)
    return;
  if (dim.isWhole() && position == 0 && layout.segments.size() == 1) {
    dim.axes = axes;
    return;
  }
  if (dim.factors.empty()) {
    dim.segments = int(layout.segments.size());
    dim.factors.resize(layout.segments.front().factors.size());
    dim.factors.front() = std::move(dim.axes);
    dim.axes.clear();
  }
  dim.factors[size_t(position)] = axes;
}

/// Returns the strategy with stand-ins for axes, so that the rules of partial results (Strategies)
/// apply to names: axis i is the one of axisNames()[i].
static OpStrategy standIns(const std::map<int, AxisNames> &loopAxes) {
  OpStrategy strategy;
  for (const auto &[loop, names] : loopAxes)
    for (const std::string &name : names) {
      auto at = std::find(axisNames().begin(), axisNames().end(), name);
      strategy.loopAxes[loop].push_back({int(at - axisNames().begin()), 1, 2});
    }
  return strategy;
}

static void findPartial(const Graph &graph, int op, const std::map<int, AxisNames> &loopAxes,
                        OpPlacement &placement) {
  const GraphOp &o = graph.ops[op];
  placement.partial.resize(o.results.size());
  auto isSummed = [&](const auto &entry) {
    const LoopKind kind = o.loops[entry.first].kind;
    return kind == LoopKind::Reduction || kind == LoopKind::Max;
  };
  if (std::none_of(loopAxes.begin(), loopAxes.end(), isSummed))
    return;
  const OpStrategy strategy = standIns(loopAxes);
  for (size_t r = 0; r < o.results.size(); ++r)
    for (const Partial &partial : resultSharding(graph, op, strategy, int(r)).partial) {
      placement.partial[r].push_back(axisNames()[size_t(partial.axis.axis)]);
      placement.isMaximum = partial.kind == ReduceKind::Max;
    }
}

OpPlacement placementOf(const Graph &graph, int op, const std::map<int, AxisNames> &loopAxes) {
  const GraphOp &o = graph.ops[op];
  auto whole = [&](const std::vector<int> &values) {
    std::vector<std::vector<DimAxes>> tensors;
    for (int value : values)
      tensors.emplace_back(graph.values[value].layout.dims.size());
    return tensors;
  };
  OpPlacement placement{whole(o.operands), whole(o.results), {}, false};
  for (const auto &[index, axes] : loopAxes) {
    const Loop &loop = o.loops[size_t(index)];
    for (const TensorDim &at : loop.operandDims)
      splitDim(graph.values[o.operands[at.tensor]].layout.dims[at.dim], loop.factor, axes,
               placement.operands[at.tensor][at.dim]);
    for (const TensorDim &at : loop.resultDims)
      splitDim(graph.values[o.results[at.tensor]].layout.dims[at.dim], loop.factor, axes,
               placement.results[at.tensor][at.dim]);
  }
  findPartial(graph, op, loopAxes, placement);
  return placement;
}

//===----------------------------------------------------------------------===//
// From tensors to loops
//===----------------------------------------------------------------------===//

namespace {

/// Finds the loops of one op from the dims of its tensors.
class LoopFinder {
public:
  LoopFinder(const Graph &graph, int op,
             const std::function<std::vector<AxisRef>(const AxisNames &)> &axesOf)
      : graph(graph), op(graph.ops[op]), axesOf(axesOf), seen(this->op.loops.size(), 0) {}

  std::string why;
  OpStrategy strategy;

  void add(const std::vector<std::vector<DimAxes>> &tensors, const std::vector<int> &values,
           std::vector<TensorDim> Loop::*dims, const char *what) {
    if (tensors.size() != values.size())
      return fail("has " + std::to_string(values.size()) + " " + what + ", and not " +
                  std::to_string(tensors.size()));
    for (size_t t = 0; t < tensors.size() && why.empty(); ++t) {
      const TensorLayout &layout = graph.values[values[t]].layout;
      const std::string name = std::string(what) + "[" + std::to_string(t) + "]";
      if (tensors[t].size() != layout.dims.size())
        return fail(name + " has " + std::to_string(layout.dims.size()) + " dims, and not " +
                    std::to_string(tensors[t].size()));
      for (size_t d = 0; d < tensors[t].size() && why.empty(); ++d)
        addDim(tensors[t][d], layout.dims[d], {int(t), int(d)}, dims,
               name + "[" + std::to_string(d) + "]");
    }
  }

  /// A loop is split in all of its tensors or in none.
  void checkWhole() {
    for (const auto &[loop, axes] : strategy.loopAxes) {
      const Loop &l = op.loops[size_t(loop)];
      if (why.empty() && seen[size_t(loop)] != l.operandDims.size() + l.resultDims.size())
        fail("a dim is split, and the same dim in another operand or result is not");
    }
  }

private:
  void fail(const std::string &text) {
    if (why.empty())
      why = "op \"" + op.id + "\": " + text;
  }

  void addDim(const DimAxes &dim, const DimLayout &layout, TensorDim at,
              std::vector<TensorDim> Loop::*dims, const std::string &name) {
    if (dim.isWhole())
      return;
    const bool isSimple = dim.factors.empty();
    const size_t count = layout.segments.empty() ? 0 : layout.segments.front().factors.size();
    if (!isSimple && (dim.segments != int(layout.segments.size()) || dim.factors.size() != count))
      return fail(name + " is " + std::to_string(layout.segments.size()) + " segments of " +
                  std::to_string(count) + " factors, and not " + std::to_string(dim.segments) +
                  " of " + std::to_string(dim.factors.size()));
    if (isSimple && (count == 0 || layout.segments.size() != 1))
      return fail(name + (count == 0
                              ? " has size 1 and cannot be split"
                              : " is a concatenation of " + std::to_string(layout.segments.size()) +
                                    " segments, so its axes stand in \"factors\""));
    for (size_t f = 0; f < (isSimple ? 1 : count); ++f)
      addFactor(isSimple ? dim.axes : dim.factors[f], layout.segments.front().factors[f].id, at,
                dims, name);
  }

  void addFactor(const AxisNames &names, FactorId factor, TensorDim at,
                 std::vector<TensorDim> Loop::*dims, const std::string &name) {
    std::vector<AxisRef> axes = axesOf(names);
    if (axes.empty() || !why.empty())
      return;
    for (size_t loop = 0; loop < op.loops.size(); ++loop) {
      const Loop &l = op.loops[loop];
      const bool runsThrough =
          l.factor == factor && std::any_of((l.*dims).begin(), (l.*dims).end(), [&](TensorDim dim) {
            return dim.tensor == at.tensor && dim.dim == at.dim;
          });
      if (!runsThrough)
        continue;
      auto [known, isNew] = strategy.loopAxes.emplace(int(loop), axes);
      if (!isNew && known->second != axes)
        return fail(name + " is split over other axes than the same dim of another operand or "
                           "result");
      ++seen[loop];
      return;
    }
    fail(name + " cannot be split: the op needs that dim whole");
  }

  const Graph &graph;
  const GraphOp &op;
  const std::function<std::vector<AxisRef>(const AxisNames &)> &axesOf;
  std::vector<size_t> seen; // by loop: the number of its dims with axes
};

} // namespace

std::string strategyFrom(const Graph &graph, int op, const OpPlacement &placement,
                         const std::function<std::vector<AxisRef>(const AxisNames &)> &axesOf,
                         OpStrategy &strategy) {
  LoopFinder finder(graph, op, axesOf);
  finder.add(placement.operands, graph.ops[op].operands, &Loop::operandDims, "operands");
  finder.add(placement.results, graph.ops[op].results, &Loop::resultDims, "results");
  finder.checkWhole();
  strategy = std::move(finder.strategy);
  return finder.why;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string dimText(const DimAxes &dim) {
  if (dim.isWhole())
    return "-";
  if (dim.factors.empty())
    return joined(dim.axes, "+");
  std::string text;
  for (const AxisNames &axes : dim.factors)
    text += (text.empty() ? "" : " x ") + (axes.empty() ? "-" : joined(axes, "+"));
  return dim.segments == 1 ? text : std::to_string(dim.segments) + " of " + text;
}

static std::string tensorText(const std::vector<DimAxes> &dims) {
  std::vector<std::string> texts;
  for (const DimAxes &dim : dims)
    texts.push_back(dimText(dim));
  return "(" + joined(texts, ", ") + ")";
}

std::string toString(const OpPlacement &placement) {
  std::string text;
  for (const std::vector<DimAxes> &dims : placement.operands)
    text += tensorText(dims) + " ";
  text += "->";
  for (const std::vector<DimAxes> &dims : placement.results)
    text += " " + tensorText(dims);
  for (const AxisNames &axes : placement.partial)
    if (!axes.empty())
      return text + (placement.isMaximum ? " partial maximum " : " partial ") + joined(axes, "+");
  return text;
}

} // namespace tbc::planner
