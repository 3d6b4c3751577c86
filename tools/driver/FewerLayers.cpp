//===- FewerLayers.cpp - A step and its plan with fewer repeated layers ----===//

#include "tools/driver/FewerLayers.h"

#include "ir/Movement.h"
#include "ir/Tbc.h"
#include "planner/graph/OmitRepeats.h"
#include "planner/graph/Recompute.h"
#include "planner/plan/PlanApply.h"
#include "planner/report/BlockNames.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <map>
#include <set>

using namespace mlir;

namespace tbc::driver {

namespace {

/// Numbers texts in the order of their appearance.
class Numbers {
public:
  uint64_t operator()(const std::string &text) {
    return numbers.emplace(text, numbers.size()).first->second;
  }

private:
  std::map<std::string, uint64_t> numbers;
};

/// Attributes that differ from layer to layer by design: ids, and keys of random numbers.
constexpr llvm::StringLiteral ownAttributes[] = {kIdAttr, "key", "dropout_key"};

/// Numbers forward ops: equal for ops of equal name and attributes, but for `ownAttributes`. The
/// elements of a constant are data, as a parameter's are.
std::vector<uint64_t> kindsOf(const TrainingStep &step) {
  llvm::DenseMap<std::pair<StringRef, Attribute>, uint64_t> numbers;
  std::vector<uint64_t> kinds;
  for (int op = 0; op < planner::numForwardOps(step.step.graph); ++op) {
    Operation *operation = step.step.ops[size_t(op)];
    NamedAttrList attributes(operation->getAttrDictionary());
    for (StringRef name : ownAttributes)
      attributes.erase(name);
    if (auto constant = dyn_cast<ConstantOp>(operation))
      attributes.set(constant.getValueAttrName(),
                     BoolAttr::get(operation->getContext(), constant.getValue().isSplat()));
    const std::pair key(operation->getName().getStringRef(),
                        Attribute(attributes.getDictionary(operation->getContext())));
    kinds.push_back(numbers.try_emplace(key, numbers.size()).first->second);
  }
  return kinds;
}

std::string textOf(const std::vector<reshard::AxisRef> &axes, const reshard::Mesh &mesh) {
  std::string text;
  for (const reshard::AxisRef &axis : axes)
    text += toString(mesh, axis) + ",";
  return text;
}

/// The decisions of a plan on the forward ops of its step, as text: equal for equal decisions.
class DecisionTexts {
public:
  DecisionTexts(const reshard::Graph &graph, const planner::PlannedStep &planned,
                const planner::Plan &plan)
      : graph(graph), planned(planned), mesh(planned.assignment.mesh),
        recomputed(plan.recomputeOps.begin(), plan.recomputeOps.end()),
        offloaded(plan.offload.ops.begin(), plan.offload.ops.end()) {
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      parameterOf[graph.parameters[p].value] = p;
  }

  /// Without its chunk.
  std::string ofOp(int op) const {
    const reshard::GraphOp &planOp = planned.graph.ops[size_t(op)];
    std::string text;
    for (const auto &[loop, axes] : planned.assignment.strategies[size_t(op)].loopAxes)
      text += "; loop " + std::to_string(loop) + " " + textOf(axes, mesh);
    text += recomputed.count(planOp.id) ? "; recomputed" : "";
    text += offloaded.count(planOp.id) ? "; offloaded" : "";
    for (int value : graph.ops[size_t(op)].operands)
      if (auto it = parameterOf.find(value); it != parameterOf.end())
        text += "; " + ofParameter(it->second);
    return text;
  }

  std::string ofParameter(size_t p) const {
    const reshard::ParameterPlan &plan = planned.assignment.parameterPlans[p];
    return "zero " + std::to_string(plan.zero) + (plan.keepGathered ? " kept" : "") + " over " +
           textOf(plan.zeroAxes, mesh) + " reduced over " + textOf(plan.reduceAxes, mesh) +
           (graph.parameters[p].gradient < 0 ? " frozen" : "");
  }

  /// The decisions by op id and parameter name.
  std::map<std::string, std::string> all() const {
    std::map<std::string, std::string> texts;
    for (int op = 0; op < planner::numForwardOps(graph); ++op)
      texts["op " + graph.ops[size_t(op)].id] =
          "chunk " + std::to_string(planned.graph.ops[size_t(op)].chunk) + ofOp(op);
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      texts["parameter " + graph.values[size_t(graph.parameters[p].value)].name] = ofParameter(p);
    return texts;
  }

private:
  const reshard::Graph &graph;
  const planner::PlannedStep &planned;
  const reshard::Mesh &mesh;
  std::map<int, size_t> parameterOf; // by value
  std::set<std::string> recomputed, offloaded;
};

/// Removes the omitted ops from `train`, whose forward ops are those of `step`.
void omitOps(func::FuncOp train, const TrainingStep &step, const planner::OmittedRepeats &omitted) {
  Block &body = train.getBody().front();
  std::vector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  for (const planner::OmittedRepeats::Read &read : omitted.reads) {
    const reshard::GraphValue &value = step.step.graph.values[size_t(read.value)];
    ops[size_t(read.op)]->setOperand(unsigned(read.operand), ops[size_t(value.producer)]->getResult(
                                                                 unsigned(value.producerResult)));
  }
  // What is left of the results of omitted ops are new values of their own states.
  Operation *terminator = body.getTerminator();
  llvm::BitVector states(train.getNumResults());
  llvm::DenseSet<Operation *> erased;
  for (size_t i = 0; i < ops.size(); ++i)
    if (omitted.isOmitted[i])
      erased.insert(ops[i]);
  for (OpOperand &result : terminator->getOpOperands())
    states[result.getOperandNumber()] = erased.contains(result.get().getDefiningOp());
  terminator->eraseOperands(states);
  train.eraseResults(states);
  for (Operation *op : llvm::reverse(ops))
    if (erased.contains(op))
      op->erase();
}

/// Returns `plan` without its decisions for ops and parameters that are not in `step`.
planner::Plan restricted(planner::Plan plan, const TrainingStep &step) {
  const reshard::Graph &graph = step.step.graph;
  std::set<std::string> ops, parameters;
  for (const reshard::GraphOp &op : graph.ops)
    ops.insert(op.id);
  for (const reshard::GraphParameter &parameter : graph.parameters)
    parameters.insert(graph.values[size_t(parameter.value)].name);
  auto keep = [](std::vector<std::string> &names, const std::set<std::string> &known) {
    llvm::erase_if(names, [&](const std::string &name) { return !known.count(name); });
  };
  for (planner::OpDecision &decision : plan.ops)
    keep(decision.ops, ops);
  llvm::erase_if(plan.ops, [](const planner::OpDecision &one) { return one.ops.empty(); });
  keep(plan.recomputeOps, ops);
  keep(plan.offload.ops, ops);
  for (planner::ParameterOverride &entry : plan.parameterOverrides)
    keep(entry.parameters, parameters);
  llvm::erase_if(plan.parameterOverrides,
                 [](const planner::ParameterOverride &one) { return one.parameters.empty(); });
  plan.job.stepHash = step.hash;
  return plan;
}

/// Checks that what stays has the decisions that it had. Error: names the first other one.
Status checkDecisions(const std::map<std::string, std::string> &before, const TrainingStep &step,
                      const planner::Plan &plan) {
  auto planned = planner::applyPlan(step.step.graph, plan);
  if (!planned)
    return planned.error();
  for (const auto &[name, text] : DecisionTexts(step.step.graph, *planned, plan).all())
    if (auto it = before.find(name); it == before.end() || it->second != text)
      return Error{ErrorCode::Other, "with fewer layers, " + name + " has the decision \"" + text +
                                         "\" instead of \"" +
                                         (it == before.end() ? "" : it->second) +
                                         "\"; --all-layers verifies all layers"};
  return Status::ok();
}

std::string describe(const planner::OmittedRepeats::Shortened &one,
                     const planner::BlockNames &names) {
  const std::string modules = names.modulesOf(one.block);
  return "equal layers " + std::to_string(one.block.count) + " -> " + std::to_string(one.kept) +
         " (" + (modules.empty() ? "" : modules + "; ") + "--all-layers: all)";
}

} // namespace

Result<FewerLayers> withFewerLayers(const TrainingStep &step, const planner::Plan &plan) {
  const reshard::Graph &graph = step.step.graph;
  auto planned = planner::applyPlan(graph, plan);
  if (!planned)
    return planned.error();
  const DecisionTexts texts(graph, *planned, plan);
  Numbers numbers;
  planner::OpDecisions decisions;
  for (int op = 0; op < planner::numForwardOps(graph); ++op) {
    decisions.numbers.push_back(numbers(texts.ofOp(op)));
    decisions.chunks.push_back(planned->graph.ops[size_t(op)].chunk);
  }
  const planner::OmittedRepeats omitted = planner::omitRepeats(graph, kindsOf(step), decisions);
  FewerLayers result;
  result.plan = plan;
  if (omitted.blocks.empty())
    return result;
  auto fewer = withForward(step, [&](func::FuncOp train) { omitOps(train, step, omitted); });
  if (!fewer)
    return fewer.error();
  result.step = std::move(*fewer);
  result.plan = restricted(plan, *result.step);
  if (Status status = checkDecisions(texts.all(), *result.step, result.plan); !status)
    return status.error();
  const planner::BlockNames names(graph, plan.job);
  for (const planner::OmittedRepeats::Shortened &one : omitted.blocks)
    result.notes.push_back(describe(one, names));
  return result;
}

} // namespace tbc::driver
