//===- ExplainTensor.cpp - Shardings of a tensor, with reasons ------------===//

#include "planner/cost/Cost.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/explain/Explain.h"
#include "planner/pins/Conditions.h"
#include "planner/pins/OpPins.h"
#include "planner/plan/Describe.h"
#include "planner/plan/ModelNames.h"
#include "planner/plan/PlanDevices.h"
#include "planner/plan/PlanNames.h"
#include "planner/predict/CollectivePrices.h"
#include "planner/reshard/Count.h"
#include "planner/search/Explore.h"
#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <fnmatch.h>
#include <map>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

/// Describes a layout: dims joined by "x", segments of a dim by "+", factors of a segment by "*".
/// Example: "50304 x 12*64".
static std::string layoutText(const TensorLayout &layout) {
  std::string text;
  for (const DimLayout &dim : layout.dims) {
    text += text.empty() ? "" : " x ";
    for (size_t s = 0; s < dim.segments.size(); ++s) {
      text += s ? "+" : "";
      const std::vector<Factor> &factors = dim.segments[s].factors;
      if (factors.empty())
        text += "1";
      for (size_t f = 0; f < factors.size(); ++f)
        text += (f ? "*" : "") + std::to_string(factors[f].size);
    }
  }
  return text.empty() ? "scalar" : text;
}

/// Describes a sharding. Example: "dim 1, factor of 64, over tp; flat over fsdp"; "whole".
static std::string shardingText(const Mesh &mesh, const TensorLayout &layout,
                                const Sharding &sharding) {
  std::string text;
  auto add = [&](const std::string &part) { text += (text.empty() ? "" : "; ") + part; };
  for (const FactorSharding &entry : sharding.factors) {
    int64_t size = 0;
    for (const Segment &segment : layout.dims[entry.dim].segments)
      for (const Factor &factor : segment.factors)
        size = factor.id == entry.factor ? factor.size : size;
    add("dim " + std::to_string(entry.dim) + ", factor of " + std::to_string(size) + ", over " +
        toString(mesh, entry.axes));
  }
  if (!sharding.flat.empty())
    add("flat over " + toString(mesh, sharding.flat));
  for (const Partial &partial : sharding.partial)
    add(std::string(partial.kind == ReduceKind::Sum ? "to be summed" : "maximum to be taken") +
        " over " + toString(mesh, {partial.axis}));
  return text.empty() ? "whole" : text;
}

namespace {

class TensorReport {
public:
  TensorReport(const ExplainedPlan &explained, const std::vector<OpPin> &pins)
      : explained(explained), graph(explained.step.graph), derivation(explained.derivation),
        mesh(explained.step.assignment.mesh) {
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      parameterOf[graph.parameters[p].value] = int(p);
    for (const OpDecision &decision : explained.plan.ops)
      decided.insert(decision.ops.begin(), decision.ops.end());
    for (const OpPin &pin : pins)
      if (pin.spec != "begin") // says nothing about splits
        for (int op : matchingOps(explained.graph, explained.plan.job, pin.glob))
          pinned.emplace(graph.ops[op].id, toString(pin));
  }

  void add(int value) {
    const GraphValue &v = graph.values[value];
    double whole = double(v.layout.numElements()) * double(v.layout.elementBytes);
    tensors.rows.push_back({Cell::of(label(value)), Cell::of(v.name), Cell::of(roleText(v)),
                            Cell::of(layoutText(v.layout)), Cell::bytes(whole)});
    auto parameter = parameterOf.find(value);
    if (parameter != parameterOf.end())
      addParameter(value, parameter->second);
    else
      addActivation(value);
  }

  Report report() const {
    Report result;
    result.tables = {tensors, shardings, collectives};
    return result;
  }

private:
  std::string label(int value) const {
    return displayName(explained.plan.job, graph.values[value]);
  }

  static std::string roleText(const GraphValue &value) {
    switch (value.role) {
    case ValueRole::Activation:
      return value.cotangentOf >= 0 ? "cotangent" : "activation";
    case ValueRole::Parameter:
      return "parameter";
    case ValueRole::State:
      return "state";
    case ValueRole::Input:
      return "input";
    case ValueRole::Loss:
      return "loss";
    case ValueRole::OptimizerState:
      return "optimizer state";
    }
    return "";
  }

  void addSharding(int value, const std::string &as, const TensorLayout &layout,
                   const Sharding &sharding, const std::string &why) {
    shardings.rows.push_back({Cell::of(label(value)), Cell::of(as),
                              Cell::of(shardingText(mesh, layout, sharding)),
                              Cell::bytes(double(localBytes(layout, sharding))), Cell::of(why)});
  }

  /// Returns the origin of the split of `op`.
  std::string originOf(int op) const {
    const GraphOp &graphOp = graph.ops[op];
    if (auto found = pinned.find(graphOp.id); found != pinned.end())
      return "pinned: " + found->second + " names " + graphOp.id;
    if (decided.count(graphOp.id))
      return "solved: " + graphOp.id + " is split so";
    if (graphOp.forwardOp >= 0 && graphOp.forwardOp != op &&
        decided.count(graph.ops[graphOp.forwardOp].id))
      return "propagated from " + graph.ops[graphOp.forwardOp].id;
    if (explained.plan.mesh.ep > 1 && graphOp.expertLoop >= 0)
      return "experts split over ep in " + graphOp.id;
    return (explained.plan.mesh.cp > 1 ? "the batch and the sequence alone split "
                                       : "the batch alone splits ") +
           graphOp.id;
  }

  /// The plan's reason for a decision about all parameters or all ops.
  std::string reasonFor(const std::string &decision) const {
    for (const Reason &reason : explained.plan.reasons)
      if (reason.decision == decision)
        return std::string(name(reason.origin)) + ": " + reason.value +
               (reason.text == "pinned" ? "" : "; " + reason.text);
    return "";
  }

  void addUses(int value) {
    const TensorLayout &layout = graph.values[value].layout;
    std::map<Sharding, std::pair<int, int>> uses; // number, first op
    for (int user : graph.values[value].users)
      for (size_t k = 0; k < derivation.operands[user].size(); ++k)
        if (graph.ops[user].operands[k] == value) {
          auto [found, isNew] = uses.try_emplace(derivation.operands[user][k].sharding, 0, user);
          ++found->second.first;
        }
    for (const auto &[sharding, use] : uses)
      addSharding(value, "used by " + std::to_string(use.first) + (use.first == 1 ? " op" : " ops"),
                  layout, sharding, originOf(use.second));
  }

  void addParameter(int value, int p) {
    const TensorLayout &layout = graph.values[value].layout;
    const ParameterPlan &plan = explained.step.assignment.parameterPlans[p];
    const GraphParameter &parameter = graph.parameters[p];
    bool isOverride = false;
    for (const ParameterOverride &entry : explained.plan.parameterOverrides)
      isOverride |= std::count(entry.parameters.begin(), entry.parameters.end(),
                               graph.values[value].name) > 0;
    std::string why = isOverride ? "the plan's override: " + zeroName(plan.zero, plan.keepGathered)
                                 : reasonFor("zero");
    if (why.empty())
      why = zeroName(plan.zero, plan.keepGathered);
    addSharding(value, "stored", layout, derivation.stored[p], why);
    addUses(value);
    if (parameter.gradient < 0) {
      shardings.note = "a parameter without gradient and state is frozen, or not used";
    } else {
      const TensorLayout &gradient = graph.values[parameter.gradient].layout;
      addSharding(value, "gradient", gradient, derivation.gradient[p], why);
      TensorLayout state = layout;
      state.elementBytes =
          explained.plan.job.stateBytesPerElement(parameter) + masterBytes(layout.elementBytes);
      addSharding(value, "optimizer state and master", state, derivation.state[p], why);
      int64_t whole = 0;
      for (int64_t bytes : wholeStateBytes(parameter, layout, derivation.state[p]))
        whole += bytes;
      if (whole > 0)
        shardings.note = "the optimizer's states of whole matrices take " + std::to_string(whole) +
                         " bytes more on each rank";
    }
    std::set<int> values{value};
    if (parameter.gradient >= 0)
      values.insert(parameter.gradient);
    for (const GradientParts::Part &part : derivation.gradientParts[p].parts)
      values.insert(part.value);
    addCollectives(value, values);
  }

  void addActivation(int value) {
    const GraphValue &v = graph.values[value];
    if (v.producer >= 0) {
      if (derivation.raw[value] != derivation.home[value])
        addSharding(value, "produced", v.layout, derivation.raw[value], originOf(v.producer));
      addSharding(value, "at home", v.layout, derivation.home[value], originOf(v.producer));
    } else {
      addSharding(value, "at home", v.layout, derivation.home[value],
                  "the batch lies on the data axes");
    }
    addUses(value);
    bool isKept = false;
    for (const Residual &residual : derivation.residuals)
      if (residual.value == value) {
        isKept = true;
        addSharding(
            value, residual.isOnHost ? "kept for backward on the host" : "kept for backward",
            v.layout, residual.sharding, reasonFor(residual.isOnHost ? "offload" : "recompute"));
      }
    bool isForward = v.producer >= 0 && graph.ops[v.producer].phase == Phase::Forward;
    const std::vector<int> &again = explained.step.reexecuted;
    if (!isKept && isForward && std::count(again.begin(), again.end(), v.producer))
      addSharding(value, "computed again", v.layout, derivation.home[value],
                  reasonFor("recompute"));
    addCollectives(value, {value});
  }

  void addCollectives(int value, const std::set<int> &values) {
    const Assignment &assignment = explained.step.assignment;
    const StageDevices devices = stageDevices(explained.plan);
    StageNetworks network(devices, mesh, assignment.pipelineAxis);
    for (const Reshard &reshard : derivation.reshards) {
      if (!values.count(reshard.value))
        continue;
      for (const Collective &step : reshard.steps) {
        CollectiveCount line;
        line.kind = step.kind;
        line.axes = axesText(mesh, step);
        line.stage = reshard.stage;
        line.bytes = step.bytes;
        double count = reshard.perStep ? 1 : double(assignment.microBatches);
        if (step.kind != CollectiveKind::ShardSlice)
          collectives.rows.push_back(
              {Cell::of(label(value)), Cell::of(name(step.kind)), Cell::of(line.axes),
               Cell::of(reshard.op >= 0   ? "before " + graph.ops[reshard.op].id
                        : reshard.perStep ? "once per step"
                                          : "where it is made"),
               Cell::count(reshard.stage), Cell::count(count), Cell::bytes(double(step.bytes)),
               Cell::seconds(
                   count * listedSeconds(explained.prediction.collectives, network, mesh, line))});
      }
    }
  }

  const ExplainedPlan &explained;
  const Graph &graph;
  const Derivation &derivation;
  const Mesh &mesh;
  std::map<int, int> parameterOf;
  std::set<std::string> decided;
  std::map<std::string, std::string> pinned; // by op id: the flag
  Table tensors{"tensors",
                "tensors",
                {{"tensor", "tensor"},
                 {"name", "name in the model"},
                 {"role", "role"},
                 {"layout", "factors of its dims"},
                 {"bytes", "bytes, whole"}},
                {},
                ""};
  Table shardings{"shardings",
                  "where they lie",
                  {{"tensor", "tensor"},
                   {"as", "as"},
                   {"sharding", "split"},
                   {"bytes", "bytes of a rank"},
                   {"why", "why"}},
                  {},
                  ""};
  Table collectives{"collectives",
                    "collectives on them, of one step and device",
                    {{"tensor", "tensor"},
                     {"kind", "kind"},
                     {"axes", "over"},
                     {"when", "when"},
                     {"stage", "stage"},
                     {"count", "count"},
                     {"bytes", "bytes"},
                     {"seconds", "seconds"}},
                    {},
                    ""};
};

} // namespace

/// Returns the names that parameters have in the modules that read them, with the parameters. Tied
/// weights have the name of only one of their modules in the plan. Example: with `transformer.wte`
/// tied to `lm_head`, "transformer.wte" and "transformer.wte.weight" name lm_head.weight.
static std::map<std::string, std::set<int>> namesInModules(const ExplainedPlan &explained) {
  const Graph &graph = explained.step.graph;
  std::map<std::string, std::set<int>> names;
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    const std::string module = moduleOf(explained.plan.job, graph, op);
    if (module.empty())
      continue;
    for (int operand : graph.ops[op].operands) {
      if (graph.values[operand].role != ValueRole::Parameter)
        continue;
      const std::string display = displayName(explained.plan.job, graph.values[operand]);
      names[module].insert(operand);
      names[module + "." + display.substr(display.rfind('.') + 1)].insert(operand);
    }
  }
  return names;
}

Result<Report> explainTensor(const ExplainedPlan &explained, const std::string &glob) {
  const Graph &graph = explained.step.graph;
  Result<Pins> pins = pinsOf(explained.plan);
  if (!pins)
    return pins.error();
  TensorReport report(explained, pins->ops);
  std::vector<std::string> names;
  constexpr size_t most = 64;
  size_t found = 0;
  for (int value = 0; value < int(graph.values.size()); ++value) {
    const GraphValue &v = graph.values[value];
    std::string display = displayName(explained.plan.job, v);
    names.push_back(v.name);
    names.push_back(display);
    if (fnmatch(glob.c_str(), v.name.c_str(), 0) != 0 &&
        fnmatch(glob.c_str(), display.c_str(), 0) != 0)
      continue;
    if (++found <= most)
      report.add(value);
  }
  if (found == 0) {
    std::set<int> parameters;
    for (const auto &[name, values] : namesInModules(explained)) {
      names.push_back(name);
      if (fnmatch(glob.c_str(), name.c_str(), 0) == 0)
        parameters.insert(values.begin(), values.end());
    }
    found = parameters.size();
    if (found <= most)
      for (int value : parameters)
        report.add(value);
  }
  if (found > most)
    return Error{ErrorCode::Usage, "--tensor " + glob + " names " + std::to_string(found) +
                                       " tensors; name at most " + std::to_string(most)};
  if (found > 0)
    return report.report();
  std::string closest = closestWord(glob, names);
  return Error{ErrorCode::Usage, "--tensor " + glob + " names no tensor of the model" +
                                     (closest.empty() ? "; parameters are listed by tbc check"
                                                      : "; did you mean " + closest + "?")};
}

} // namespace tbc::planner
