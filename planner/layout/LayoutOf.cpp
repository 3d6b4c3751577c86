//===- LayoutOf.cpp - The layout that a plan's decisions give -------------===//

#include "planner/layout/LayoutOf.h"
#include "planner/cost/StageNetworks.h"
#include "planner/graph/Fold.h"
#include "planner/graph/Recompute.h"
#include "planner/layout/Causes.h"
#include "planner/layout/LayoutTensors.h"
#include "planner/plan/ModelNames.h"
#include "planner/plan/PlanDevices.h"
#include "planner/report/BlockNames.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

class LayoutMaker {
public:
  LayoutMaker(const Graph &model, const PlannedStep &step, const Plan &plan)
      : model(model), step(step), plan(plan), graph(step.graph), mesh(step.assignment.mesh),
        derivation(derive(graph, step.assignment)), numForward(numForwardOps(graph)) {
    for (const GraphParameter &parameter : graph.parameters)
      ++displayCount[displayName(plan.job, graph.values[parameter.value])];
  }

  Layout make() {
    layout.decisions = decisionsFingerprint(plan);
    axes();
    tensors(ValueRole::Input, layout.inputs);
    tensors(ValueRole::State, layout.states);
    parameters();
    boundaries();
    modules();
    chunks();
    marks(plan.recomputeOps, layout.recompute);
    marks(plan.offload.ops, layout.offload);
    collectives();
    return std::move(layout);
  }

private:
  void axes();
  void tensors(ValueRole role, std::vector<LayoutTensors> &into);
  void parameters();
  void boundaries();
  void modules();
  void chunks();
  void marks(const std::vector<std::string> &ids, std::vector<LayoutMarks> &into);
  void collectives();

  LayoutParameters parameterAt(size_t index) const;
  GatherLifetime lifetimeOf(size_t parameter) const;
  LayoutBoundary boundaryOf(int first, int end) const;
  std::vector<std::string> modulePaths() const;
  LayoutModules moduleAt(const std::vector<int> &ops) const;
  std::vector<int64_t> summedDims(int value) const;

  /// Returns the module path of a parameter, or its initializer where the path is not its own.
  std::string nameOf(const GraphValue &parameter) const {
    std::string path = displayName(plan.job, parameter);
    return displayCount.at(path) == 1 ? path : parameter.name;
  }
  LayoutTensor homeOf(int value) const {
    return tensorOf(mesh, graph.values[value], derivation.home[value]);
  }

  const Graph &model;
  const PlannedStep &step;
  const Plan &plan;
  const Graph &graph;
  const Mesh &mesh;
  const Derivation derivation;
  const int numForward;
  std::map<std::string, int> displayCount;
  Layout layout;
};

} // namespace

void LayoutMaker::axes() {
  const StageDevices devices = stageDevices(plan);
  StageNetworks networks(devices, mesh, step.assignment.pipelineAxis);
  int64_t stride = mesh.numRanks();
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    stride /= mesh.axes[axis].size;
    GroupShape shape = worstGroup(devices, networks, mesh, step.assignment.pipelineAxis, int(axis));
    layout.axes.push_back(
        {mesh.axes[axis].name, mesh.axes[axis].size, stride, shape.nodes, shape.perNode});
  }
}

void LayoutMaker::tensors(ValueRole role, std::vector<LayoutTensors> &into) {
  for (size_t value = 0; value < graph.values.size(); ++value) {
    if (graph.values[value].role != role || graph.values[value].producer >= 0)
      continue;
    LayoutTensor tensor = homeOf(int(value));
    auto equal = std::find_if(into.begin(), into.end(),
                              [&](const LayoutTensors &known) { return known.tensor == tensor; });
    if (equal == into.end())
      equal = into.insert(equal, {{}, std::move(tensor)});
    equal->names.push_back(graph.values[value].name);
  }
}

GatherLifetime LayoutMaker::lifetimeOf(size_t parameter) const {
  const ParameterPlan &data = step.assignment.parameterPlans[parameter];
  if (derivation.stored[parameter] != derivation.home[graph.parameters[parameter].value])
    return data.keepGathered ? GatherLifetime::ForwardAndBackward : GatherLifetime::Use;
  return derivation.state[parameter] == derivation.stored[parameter] ? GatherLifetime::Always
                                                                     : GatherLifetime::Step;
}

/// Returns the dims of a parameter that the first forward op with such dims sums over or looks up:
/// no result of the op has them.
std::vector<int64_t> LayoutMaker::summedDims(int value) const {
  for (int user : graph.values[value].users) {
    if (user >= numForward)
      break;
    const GraphOp &op = graph.ops[user];
    std::set<int64_t> summed, kept;
    for (const Loop &loop : op.loops)
      for (const TensorDim &at : loop.operandDims)
        if (op.operands[size_t(at.tensor)] == value)
          (loop.resultDims.empty() ? summed : kept).insert(at.dim);
    for (int64_t dim : kept)
      summed.erase(dim);
    if (!summed.empty() && !kept.empty())
      return {summed.begin(), summed.end()};
  }
  return {};
}

LayoutParameters LayoutMaker::parameterAt(size_t index) const {
  const GraphParameter &parameter = graph.parameters[index];
  const GraphValue &value = graph.values[parameter.value];
  LayoutTensor stored = tensorOf(mesh, value, derivation.stored[index]);
  LayoutParameters group;
  group.shape = std::move(stored.shape);
  group.dtype = std::move(stored.dtype);
  group.stored = std::move(stored.placement);
  group.used = homeOf(parameter.value).placement;
  group.summed = summedDims(parameter.value);
  group.isTrained = parameter.gradient >= 0;
  if (group.isTrained) {
    const TensorLayout &gradient = graph.values[parameter.gradient].layout;
    group.gradient = placementOf(mesh, gradient, derivation.gradient[index]);
    if (derivation.parameterStages[index].size() > 1)
      group.gradient.partial.insert(group.gradient.partial.begin(), mesh::row(Axis::Pipeline).name);
    group.state = placementOf(mesh, value.layout, derivation.state[index]);
    group.lifetime = lifetimeOf(index);
    const int64_t stateBytes = plan.job.stateBytesPerElement(parameter);
    if (stateBytes != plan.job.stateBytesPerElement())
      group.stateBytes = stateBytes;
  }
  return group;
}

void LayoutMaker::parameters() {
  auto isEqual = [](const LayoutParameters &a, const LayoutParameters &b) {
    return std::tie(a.shape, a.dtype, a.isTrained, a.stored, a.used, a.gradient, a.state,
                    a.lifetime, a.summed, a.stateBytes) ==
           std::tie(b.shape, b.dtype, b.isTrained, b.stored, b.used, b.gradient, b.state,
                    b.lifetime, b.summed, b.stateBytes);
  };
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    LayoutParameters group = parameterAt(p);
    auto equal = std::find_if(layout.parameters.begin(), layout.parameters.end(),
                              [&](const auto &known) { return isEqual(known, group); });
    if (equal == layout.parameters.end())
      equal = layout.parameters.insert(equal, std::move(group));
    const GraphValue &value = graph.values[graph.parameters[p].value];
    equal->names.push_back(nameOf(value));
    if (equal->names.back() != value.name)
      layout.initializers[equal->names.back()] = value.name;
  }
}

/// Returns the activations that cross the ends of forward ops [first, end), each kind once.
LayoutBoundary LayoutMaker::boundaryOf(int first, int end) const {
  LayoutBoundary boundary;
  auto add = [&](std::vector<LayoutTensor> &into, std::set<int> &seen, int value) {
    const GraphValue &v = graph.values[value];
    if (v.role == ValueRole::Activation && v.producer >= 0 && !graph.ops[v.producer].generator &&
        seen.insert(value).second)
      into.push_back(homeOf(value));
  };
  std::set<int> entered, left;
  for (int op = first; op < end; ++op) {
    for (int value : graph.ops[op].operands)
      if (graph.values[value].producer < first)
        add(boundary.inputs, entered, value);
    for (int value : graph.ops[op].results) {
      const std::vector<int> &users = graph.values[value].users;
      if (std::any_of(users.begin(), users.end(),
                      [&](int user) { return user >= end && user < numForward; }))
        add(boundary.outputs, left, value);
    }
  }
  return boundary;
}

void LayoutMaker::boundaries() {
  BlockNames names(model, plan.job);
  for (const Block &block : foldBlocks(model)) {
    std::string name = names.modulesOf(block);
    if (name.empty())
      name = model.ops[block.first].id;
    for (int repeat = 0; repeat < block.count; ++repeat) {
      const int first = block.first + repeat * block.length;
      LayoutBoundary boundary = boundaryOf(first, first + block.length);
      if (repeat > 0 && layout.boundaries.back().inputs == boundary.inputs &&
          layout.boundaries.back().outputs == boundary.outputs) {
        layout.boundaries.back().last = repeat;
        continue;
      }
      boundary.block = name;
      boundary.first = boundary.last = repeat;
      layout.boundaries.push_back(std::move(boundary));
    }
  }
}

/// Returns the activations that enter and leave a set of forward ops, in the order of the ops. An
/// input lies as its first reader in the set needs it, an output as all its readers find it.
LayoutModules LayoutMaker::moduleAt(const std::vector<int> &ops) const {
  LayoutModules result;
  const std::set<int> inside(ops.begin(), ops.end());
  std::set<int> entered;
  for (int op : ops) {
    for (size_t i = 0; i < graph.ops[op].operands.size(); ++i) {
      const int value = graph.ops[op].operands[i];
      const GraphValue &v = graph.values[value];
      if (v.role == ValueRole::Activation && v.producer >= 0 && !inside.count(v.producer) &&
          !graph.ops[v.producer].generator && entered.insert(value).second)
        result.inputs.push_back(tensorOf(mesh, v, derivation.operands[op][i].sharding));
    }
    for (int value : graph.ops[op].results) {
      const std::vector<int> &users = graph.values[value].users;
      if (std::any_of(users.begin(), users.end(),
                      [&](int user) { return user < numForward && !inside.count(user); }))
        result.outputs.push_back(homeOf(value));
    }
  }
  return result;
}

/// Returns the module of each forward op. An op without one, as exporters make some, is of the
/// module that has its producers and users inside.
std::vector<std::string> LayoutMaker::modulePaths() const {
  std::vector<std::string> paths;
  for (int op = 0; op < numForward; ++op) {
    std::string path = moduleOf(plan.job, graph, op);
    std::optional<std::string> around;
    auto add = [&](const std::string &other) {
      if (!other.empty())
        around = around ? commonModule(*around, other) : other;
    };
    if (path.empty() && !graph.ops[op].generator) {
      for (int value : graph.ops[op].operands)
        if (int producer = graph.values[value].producer; producer >= 0)
          add(paths[size_t(producer)]);
      for (int value : graph.ops[op].results)
        for (int user : graph.values[value].users)
          if (user < numForward)
            add(moduleOf(plan.job, graph, user));
    }
    paths.push_back(around ? *around : path);
  }
  return paths;
}

void LayoutMaker::modules() {
  const std::vector<std::string> pathOf = modulePaths();
  std::vector<std::string> paths;
  std::map<std::string, std::vector<int>> opsOf;
  for (int op = 0; op < numForward; ++op) {
    const std::string &path = pathOf[size_t(op)];
    if (graph.ops[op].generator || path.empty())
      continue;
    for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
      std::vector<int> &ops = opsOf[path.substr(0, end)];
      if (ops.empty())
        paths.push_back(path.substr(0, end));
      ops.push_back(op);
      if (end == std::string::npos)
        break;
    }
  }
  for (const std::string &path : paths) {
    LayoutModules module = moduleAt(opsOf[path]);
    auto equal = std::find_if(layout.modules.begin(), layout.modules.end(), [&](const auto &known) {
      return known.inputs == module.inputs && known.outputs == module.outputs;
    });
    if (equal == layout.modules.end())
      equal = layout.modules.insert(equal, std::move(module));
    equal->names.push_back(path);
  }
}

/// Returns the parts of a list "a, b".
static std::vector<std::string> parted(const std::string &list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < list.size();) {
    size_t end = std::min(list.find(", ", begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 2;
  }
  return parts;
}

void LayoutMaker::chunks() {
  const int count = step.assignment.numChunks();
  std::vector<std::set<std::string>> parametersOf(static_cast<size_t>(count));
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[parameter.value];
    for (int user : value.users)
      parametersOf[size_t(graph.ops[user].chunk)].insert(nameOf(value));
  }
  BlockNames names(model, plan.job);
  int begin = 0;
  for (int chunk = 0; chunk < count; ++chunk) {
    int end = begin;
    while (end < numForward && graph.ops[end].chunk == chunk)
      ++end;
    const std::set<std::string> &held = parametersOf[size_t(chunk)];
    layout.chunks.push_back({chunk,
                             step.assignment.stageOf(chunk),
                             plan.stages[size_t(chunk)],
                             parted(names.modulesOf({begin, end - begin, 1})),
                             {held.begin(), held.end()}});
    begin = end;
  }
}

void LayoutMaker::marks(const std::vector<std::string> &ids, std::vector<LayoutMarks> &into) {
  if (ids.empty())
    return;
  const std::set<std::string> marked(ids.begin(), ids.end());
  std::map<std::string, std::pair<int64_t, int64_t>> byModule; // marked ops, all ops
  for (int op = 0; op < numForward; ++op) {
    if (graph.ops[op].generator)
      continue;
    std::string module = moduleOf(plan.job, graph, op);
    auto &[number, all] = byModule[module.empty() ? graph.ops[op].id : module];
    number += int64_t(marked.count(graph.ops[op].id));
    ++all;
  }
  std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> byCount;
  for (const auto &[module, count] : byModule)
    if (count.first > 0)
      byCount[count].push_back(module);
  for (const auto &[count, modules] : byCount)
    into.push_back({modules, count.first, count.second});
}

void LayoutMaker::collectives() {
  const Overlap overlap = planOverlap(graph, derivation, overlapOf(plan));
  using Key = std::tuple<std::string, std::string, std::string, AxisNames, int64_t>;
  std::map<Key, std::map<int, int64_t>> counts; // by stage
  for (const CausedCollective &one : causedCollectives(plan.job, step, derivation, overlap))
    counts[{name(one.collective.kind), one.purpose, one.cause, axesOf(mesh, one.collective),
            one.collective.bytes}][one.stage] += one.count;
  for (const auto &[key, byStage] : counts) {
    const auto &[kind, purpose, cause, names, bytes] = key;
    std::map<int64_t, std::vector<int>> stagesOf; // by count
    for (const auto &[stage, count] : byStage)
      stagesOf[count].push_back(stage);
    for (const auto &[count, stages] : stagesOf)
      layout.collectives.push_back({kind, purpose, cause, names, stages, bytes, count});
  }
}

Layout layoutOf(const Graph &graph, const PlannedStep &step, const Plan &plan) {
  return LayoutMaker(graph, step, plan).make();
}

Result<Layout> layoutOf(const Graph &graph, const Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  return layoutOf(graph, *step, plan);
}

} // namespace tbc::planner
