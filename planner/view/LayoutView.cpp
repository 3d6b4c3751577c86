//===- LayoutView.cpp - Parameters, boundaries and causes of a plan --------===//

#include "planner/view/LayoutView.h"
#include "planner/support/Format.h"
#include "planner/support/IdList.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tbc::planner {

static std::string dimText(const DimSplit &dim) {
  if (dim.segments.empty())
    return dim.axes.empty() ? "-" : joined(dim.axes, "+");
  std::string text;
  for (const std::vector<SplitFactor> &segment : dim.segments) {
    std::string factors;
    for (const SplitFactor &factor : segment)
      factors += (factors.empty() ? "" : " ") + std::to_string(factor.size) +
                 (factor.axes.empty() ? "" : "/" + joined(factor.axes, "+"));
    text += "[" + factors + "]";
  }
  return text;
}

std::string toString(const TensorPlacement &placement) {
  std::string text;
  for (const DimSplit &dim : placement.dims)
    text += (text.empty() ? "" : ", ") + dimText(dim);
  text = "(" + text + ")";
  if (!placement.partial.empty())
    text += (placement.isMaximum ? " maximum over " : " partial ") + joined(placement.partial, "+");
  if (!placement.flat.empty())
    text += " flat " + joined(placement.flat, "+");
  return text;
}

static std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

static std::string tensorsText(const std::vector<LayoutTensor> &tensors) {
  std::string text;
  for (const LayoutTensor &tensor : tensors)
    text += (text.empty() ? "" : "\n") + shapeText(tensor.shape) + " " + tensor.dtype + " " +
            toString(tensor.placement);
  return text;
}

/// The stages that hold each parameter; a shared one is on several.
using StagesOf = std::map<std::string, std::set<int>>;

static ParameterRow rowOf(const LayoutParameters &group, const StagesOf &stages) {
  ParameterRow row;
  row.names = compressIds(group.names);
  row.count = int64_t(group.names.size());
  row.shape = shapeText(group.shape);
  row.dtype = group.dtype;
  row.stored = toString(group.stored);
  row.used = toString(group.used);
  row.gradient = group.isTrained ? toString(group.gradient) : "not trained";
  row.state = group.isTrained ? toString(group.state) : "";
  row.lifetime = name(group.lifetime);
  row.group = group;
  for (const std::string &parameter : group.names)
    if (auto found = stages.find(parameter); found != stages.end())
      for (int stage : found->second)
        ++row.byStage[stage];
  return row;
}

/// Returns the rows of the layout's collectives, with the seconds of equal collectives of the
/// prediction.
static std::vector<CauseRow> causesOf(const Plan &plan) {
  std::map<std::tuple<std::string, std::string, int, int64_t>, double> seconds;
  for (const CollectiveLine &line : plan.prediction.collectives)
    seconds[{reshard::name(line.count.kind), line.count.axes, line.count.stage, line.count.bytes}] =
        line.seconds;
  std::vector<CauseRow> rows;
  for (const LayoutCollective &one : plan.layout.collectives) {
    CauseRow row{one.kind,   one.purpose, one.cause, joined(one.axes, "+"),
                 one.stages, one.bytes,   one.count, 0};
    for (int stage : one.stages) {
      auto price = seconds.find({one.kind, row.axes, stage, one.bytes});
      if (price != seconds.end())
        row.seconds = std::max(row.seconds, price->second * double(one.count));
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const CauseRow &a, const CauseRow &b) { return a.seconds > b.seconds; });
  return rows;
}

LayoutView layoutView(const Plan &plan) {
  LayoutView view;
  if (plan.layout.isEmpty())
    return view;
  view.stale = whyLayoutIsStale(plan);
  if (!view.stale.empty())
    return view;
  view.axes = plan.layout.axes;
  StagesOf stages;
  for (const LayoutChunk &chunk : plan.layout.chunks)
    for (const std::string &parameter : chunk.parameters)
      stages[parameter].insert(chunk.stage);
  for (const LayoutParameters &group : plan.layout.parameters)
    view.parameters.push_back(rowOf(group, stages));
  for (const LayoutBoundary &boundary : plan.layout.boundaries)
    view.boundaries.push_back({boundary.block, boundary.first, boundary.last,
                               tensorsText(boundary.inputs), tensorsText(boundary.outputs)});
  view.causes = causesOf(plan);
  return view;
}

} // namespace tbc::planner
