//===- PlanApply.cpp - A plan on the graph of its model --------------------===//

#include "planner/plan/PlanApply.h"
#include "planner/devices/StageDevices.h"
#include "planner/graph/PlaceAxes.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/graph/Values.h"
#include "planner/plan/JobGraph.h"
#include "planner/reshard/SequenceOrder.h"
#include "planner/reshard/SplitBackward.h"
#include "runtime/abi/ClosestWord.h"
#include "runtime/mesh/AxisIndex.h"
#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <map>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// Applies one plan; reports the first mismatch with the graph.
class Applier {
public:
  Applier(const Graph &graph, const Plan &plan) : plan(plan) {
    step.graph = graphOfJob(withBatch(graph, plan.microBatch * plan.mesh.dataRanks()), plan.job,
                            plan.cluster);
    step.assignment.mesh = plan.mesh.mesh();
    step.assignment.pipelineAxis = axisIndex(step.assignment.mesh, Axis::Pipeline);
    step.assignment.numStages = int(plan.mesh.pp);
    step.assignment.chunkStage = plan.chunkStage;
    step.assignment.microBatches = plan.accumulation;
    for (int op = 0; op < int(graph.ops.size()); ++op)
      opIndex.emplace(graph.ops[op].id, op);
  }

  Result<PlannedStep> run() {
    if (Status status = checkMatmulPrecision(step.graph, plan.job, plan.cluster); !status)
      return status.error();
    if (Status status = checkRates(step.graph, plan.cluster); !status)
      return status.error();
    if (auto devices =
            StageDevices::make(plan.cluster, plan.mesh.pp, plan.mesh.numRanks() / plan.mesh.pp);
        !devices)
      return bad("mesh", devices.error().message);
    if (plan.mesh.dataRanks() > 1 && step.graph.batchFactor < 0)
      return bad("mesh", "the model has no batch dim to split over dp, fsdp and ep");
    if (commonExperts(step.graph) % plan.mesh.ep != 0)
      return bad("mesh", "axis ep of size " + std::to_string(plan.mesh.ep) +
                             " does not divide the experts of the model (" +
                             std::to_string(commonExperts(step.graph)) + ")");
    if (int meeting = firstMeeting(step.graph); meeting >= 0 && plan.accumulation > 1)
      return bad("accumulation",
                 "op \"" + step.graph.ops[meeting].id +
                     "\" joins the samples of the whole batch, so a step has one micro-batch");
    std::vector<int> firstOps = findStages();
    if (error.empty())
      setChunks(step.graph, firstOps);
    applyOps();
    applyParameters();
    std::vector<bool> recompute = flagsOf("recompute", plan.recomputeOps);
    std::vector<bool> offload = flagsOf("offload", plan.offload.ops);
    if (!error.empty())
      return Error{ErrorCode::Usage, error};

    step.reexecuted = reexecutedOps(step.graph, recompute);
    std::vector<int> sourceOf;
    step.graph = withRecompute(step.graph, recompute, &step.cloneOf, &sourceOf);
    std::vector<OpStrategy> strategies;
    for (int source : sourceOf)
      strategies.push_back(step.assignment.strategies[source]);
    step.assignment.strategies = std::move(strategies);
    step.assignment.offloadsStates = plan.offload.optimizer;
    step.assignment.reducesInLastBackward = executorOf(plan.cluster).isOwn();
    step.assignment.exchangesTokens = !executorOf(plan.cluster).isOwn();
    if (!plan.offload.ops.empty())
      for (size_t op = 0; op < sourceOf.size(); ++op)
        step.assignment.offloadedOps.push_back(step.cloneOf[op] < 0 && offload[sourceOf[op]]);
    if (std::string why = whyInvalidSchedule(plan); !why.empty())
      return bad("schedule", why);
    if (plan.schedule && schedule::splitsBackward(*plan.schedule))
      splitBackward(step.graph);
    if (std::string why = whyStateIsParted(step.graph); !why.empty())
      return bad("stages", why);
    if (std::string why = whyInvalid(step.graph, step.assignment); !why.empty())
      return bad("strategies or stages", why);
    return std::move(step);
  }

private:
  Error bad(const std::string &key, const std::string &message) {
    return Error{ErrorCode::Usage, "plan key \"" + key + "\": " + message};
  }
  void fail(const std::string &key, const std::string &message) {
    if (error.empty())
      error = bad(key, message).message;
  }

  int findOp(const std::string &key, const std::string &id) {
    auto found = opIndex.find(id);
    if (found != opIndex.end())
      return found->second;
    std::vector<std::string> ids;
    for (const auto &[name, index] : opIndex)
      ids.push_back(name);
    std::string closest = closestWord(id, ids);
    fail(key, "the model has no op \"" + id + "\"" +
                  (closest.empty() ? "" : "; did you mean \"" + closest + "\"?"));
    return -1;
  }

  /// Returns the first op of each chunk. They must be forward ops, ascending, beginning with op 0.
  std::vector<int> findStages() {
    if (int64_t(plan.stages.size()) != plan.numChunks()) {
      fail("stages", std::to_string(plan.stages.size()) + " stages, but " +
                         (plan.chunkStage.empty() ? "mesh axis pp has size "
                                                  : "the length of key \"placement\" is ") +
                         std::to_string(plan.numChunks()));
      return {0};
    }
    std::vector<int> firstOps;
    int numForward = numForwardOps(step.graph);
    for (const std::string &id : plan.stages) {
      int op = findOp("stages", id);
      if (op >= 0 && (op >= numForward || (!firstOps.empty() && op <= firstOps.back()) ||
                      (firstOps.empty() && op != 0)))
        fail("stages", "\"" + id +
                           "\" must be a forward op, the first the first op of the model, " +
                           "and each after the one before");
      else if (op > 0 && (step.graph.ops[op].generator || op == firstOwnOp(step.graph)))
        fail("stages", "a stage that begins or ends at \"" + id +
                           "\" would have to be there for constants alone");
      firstOps.push_back(op);
    }
    return firstOps;
  }

  std::vector<AxisRef> axesOf(const std::string &key, const std::vector<std::string> &names) {
    std::vector<AxisRef> axes;
    for (const std::string &name : names) {
      if (const std::optional<Axis> known = mesh::parseAxis(name);
          !known || *known == Axis::Pipeline)
        fail(key, "\"" + name + "\" is not an axis that tensors may lie on (any but pp)");
      int axis = step.assignment.mesh.axisIndex(name);
      if (axis >= 0) // an axis of size 1 is not in the mesh
        axes.push_back(wholeAxis(step.assignment.mesh, axis));
    }
    return axes;
  }

  /// Sets all strategies: batch axes, then the plan's decisions, then inheritance, then context
  /// parallelism.
  void applyOps() {
    std::vector<AxisRef> dataAxes = axesOf("mesh", mesh::axisNames(Divides::Samples));
    std::vector<AxisRef> expertAxes = axesOf("mesh", mesh::axisNames(Divides::Experts));
    std::vector<OpStrategy> &strategies = step.assignment.strategies;
    for (int op = 0; op < int(step.graph.ops.size()); ++op)
      strategies.push_back(batchStrategy(step.graph, op, dataAxes, expertAxes));
    for (const OpDecision &decision : plan.ops) {
      for (const std::string &id : decision.ops) {
        int op = findOp("strategies", id);
        if (op >= 0)
          strategies[op] = strategyOf(op, decision);
      }
    }
    std::vector<AxisRef> context = axesOf("mesh", mesh::axisNames(Divides::Sequence));
    if (!error.empty())
      return;
    strategies = completeStrategies(step.graph, std::move(strategies));
    if (context.empty())
      return;
    if (std::string why = addContext(step.graph, strategies, context, plan.context); !why.empty())
      fail("context", std::string(name(plan.context)) + ": " + why);
    step.isZigzag = plan.zigzag;
    if (plan.zigzag)
      if (std::string why = whyNoZigzag(step.graph, plan.mesh.cp); !why.empty())
        fail("sequence_order", "zigzag: " + why + "; use contiguous");
  }

  /// Returns the strategy of a decision on one op, after checking dims, axes and sizes.
  OpStrategy strategyOf(int index, const OpDecision &decision) {
    const GraphOp &op = step.graph.ops[index];
    OpStrategy strategy;
    auto axes = [&](const AxisNames &names) { return axesOf("strategies", names); };
    if (std::string why = strategyFrom(step.graph, index, decision.placement, axes, strategy);
        !why.empty()) {
      fail("strategies", why);
      return {};
    }
    std::vector<AxisRef> used;
    for (const auto &[loop, refs] : strategy.loopAxes) {
      for (const AxisRef &axis : refs) {
        if (std::find(used.begin(), used.end(), axis) != used.end())
          fail("strategies", "op \"" + op.id + "\" has axis \"" +
                                 step.assignment.mesh.axes[axis.axis].name + "\" twice");
        used.push_back(axis);
      }
      if (op.loops[loop].kind == LoopKind::Fixed || op.loops[loop].size % groupSize(refs) != 0)
        fail("strategies", "a dim of op \"" + op.id + "\", of size " +
                               std::to_string(op.loops[loop].size) + ", cannot be split into " +
                               std::to_string(groupSize(refs)));
    }
    if (error.empty())
      checkPartial(index, decision.placement, strategy);
    return strategy;
  }

  /// Partial results follow from the split. The plan says them for its other readers, so they must
  /// be right.
  void checkPartial(int index, const OpPlacement &placement, const OpStrategy &strategy) {
    const GraphOp &op = step.graph.ops[index];
    for (size_t r = 0; r < op.results.size(); ++r) {
      std::set<std::string> said, made;
      for (const std::string &name : placement.partial[r])
        if (step.assignment.mesh.axisIndex(name) >= 0)
          said.insert(name);
      bool isMaximum = placement.isMaximum;
      for (const Partial &partial : resultSharding(step.graph, index, strategy, int(r)).partial) {
        made.insert(step.assignment.mesh.axes[partial.axis.axis].name);
        isMaximum = partial.kind == ReduceKind::Max;
      }
      if (said == made && (said.empty() || isMaximum == placement.isMaximum))
        continue;
      std::string axes;
      for (const std::string &name : made)
        axes += (axes.empty() ? "" : ", ") + name;
      fail("strategies", "op \"" + op.id + "\": results[" + std::to_string(r) + "] is " +
                             (made.empty() ? "complete, so \"partial\" names no axis for it"
                                           : "partial over " + axes + "; write that in \"" +
                                                 (isMaximum ? "partial_max" : "partial") + "\""));
    }
  }

  ParameterPlan parameterPlan(const std::string &key, const ParameterDecision &decision) {
    ParameterPlan result;
    result.zero = decision.zero;
    result.keepGathered = decision.keepGathered;
    result.zeroAxes = axesOf(key, decision.zeroAxes);
    result.reduceAxes = axesOf(key, decision.reduceAxes);
    if (result.zeroAxes.empty()) { // over one rank, all modes are equal
      result.zero = 0;
      result.keepGathered = false;
    }
    return result;
  }

  void applyParameters() {
    std::vector<ParameterPlan> &plans = step.assignment.parameterPlans;
    plans.assign(step.graph.parameters.size(), parameterPlan("parameters", plan.parameterDefault));
    std::map<std::string, size_t> byName;
    for (size_t p = 0; p < plans.size(); ++p)
      byName.emplace(step.graph.values[step.graph.parameters[p].value].name, p);
    for (const ParameterOverride &entry : plan.parameterOverrides) {
      for (const std::string &name : entry.parameters) {
        auto found = byName.find(name);
        if (found == byName.end())
          fail("parameters", "the model has no parameter \"" + name + "\"");
        else
          plans[found->second] = parameterPlan("parameters", entry.decision);
      }
    }
  }

  /// Returns, by op, whether it is one of `ids`. These must be forward ops.
  std::vector<bool> flagsOf(const std::string &key, const std::vector<std::string> &ids) {
    std::vector<bool> flags(step.graph.ops.size(), false);
    int numForward = numForwardOps(step.graph);
    for (const std::string &id : ids) {
      int op = findOp(key, id);
      if (op >= numForward)
        fail(key, "\"" + id + "\" is not a forward op");
      else if (op >= 0)
        flags[op] = true;
    }
    return flags;
  }

  const Plan &plan;
  PlannedStep step;
  std::map<std::string, int> opIndex;
  std::string error;
};

} // namespace

Result<PlannedStep> applyPlan(const Graph &graph, const Plan &plan) {
  return Applier(graph, plan).run();
}

} // namespace tbc::planner
