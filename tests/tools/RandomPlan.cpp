//===- RandomPlan.cpp - Random valid plans --------------------------------===//

#include "tests/tools/RandomPlan.h"

#include "planner/graph/PlaceAxes.h"
#include "planner/graph/Stages.h"
#include "planner/place/Place.h"
#include "planner/plan/PlanApply.h"
#include "planner/reshard/SequenceOrder.h"
#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <random>
#include <set>

namespace tbc::test {

using reshard::AxisRef;
using reshard::Graph;
using reshard::GraphOp;
using reshard::OpStrategy;
using schedule::ScheduleKind;

namespace {

class Decider {
public:
  Decider(planner::Plan plan, const Graph &graph, uint64_t seed)
      : plan(std::move(plan)), graph(graph), mesh(this->plan.mesh.mesh()), random(seed) {
    for (int axis = 0; axis < int(mesh.axes.size()); ++axis) {
      const std::string &name = mesh.axes[axis].name;
      if (name == "pp")
        continue;
      axes.push_back(reshard::wholeAxis(mesh, axis));
      const std::vector<std::string> &data = planner::dataAxisNames();
      if (std::find(data.begin(), data.end(), name) != data.end())
        dataAxes.push_back(axes.back());
    }
  }

  planner::Plan make() {
    plan.ops.clear();
    plan.parameterOverrides.clear();
    plan.recomputeOps.clear();
    cutStages();
    decideRecompute();
    decideOffload();
    decideOverlap();
    // The percentage of ops with a drawn strategy; the others split only the batch.
    int changes = below(3) ? 1 + below(30) : 1 + below(100);
    for (int op = 0; op < int(graph.ops.size()); ++op) {
      if (!planner::choosesForItself(graph, op) || graph.ops[op].generator)
        continue;
      OpStrategy strategy = reshard::batchStrategy(graph, op, dataAxes);
      addDecision(op, below(100) < changes ? draw(op, strategy) : strategy);
    }
    for (const reshard::GraphParameter &parameter : graph.parameters)
      plan.parameterOverrides.push_back({decideParameter(), {graph.values[parameter.value].name}});
    return std::move(plan);
  }

private:
  int below(int n) { return int(random() % uint64_t(n)); }

  void cutStages() {
    plan.stages = {graph.ops[0].id};
    plan.chunkStage.clear();
    if (plan.mesh.pp == 1)
      return;
    std::vector<bool> mayBegin = planner::stageMayBegin(graph);
    std::vector<std::string> begins;
    for (size_t op = 1; op < mayBegin.size(); ++op)
      if (mayBegin[op])
        begins.push_back(graph.ops[op].id);
    placeChunks(int(begins.size()));
    std::set<int> cuts;
    while (int64_t(cuts.size()) + 1 < plan.numChunks())
      cuts.insert(below(int(begins.size())));
    for (int cut : cuts)
      plan.stages.push_back(begins[cut]);
  }

  /// Draws one chunk per stage, or several (looped, V-shaped or anywhere), and a schedule that
  /// accepts them.
  void placeChunks(int numPlaces) {
    int stages = int(plan.mesh.pp);
    const ScheduleKind simple[] = {ScheduleKind::OneFOneB, ScheduleKind::GPipe,
                                   ScheduleKind::ZeroBubble};
    plan.schedule = simple[below(3)];
    int chunks = below(2) ? stages : below(2) ? 2 * stages : stages + 1 + below(3);
    if (chunks == stages || numPlaces < chunks)
      return;
    if (chunks == 2 * stages) {
      plan.chunkStage =
          (below(2) ? schedule::Pipeline::loop(stages, 2) : schedule::Pipeline::vee(stages, 2))
              .chunkStage;
    } else {
      for (int chunk = 0; chunk < chunks; ++chunk)
        plan.chunkStage.push_back(chunk < stages ? chunk : below(stages));
      std::shuffle(plan.chunkStage.begin(), plan.chunkStage.end(), random);
    }
    plan.schedule = below(2) ? ScheduleKind::Interleaved : ScheduleKind::ZeroBubble;
    if (!planner::whyInvalidSchedule(plan).empty()) // the micro-batches do not divide
      plan.schedule = ScheduleKind::ZeroBubble;
  }

  void decideRecompute() {
    int share = below(3) ? 0 : 1 + below(4); // of 4
    for (const GraphOp &op : graph.ops)
      if (op.phase == reshard::Phase::Forward && !op.generator && below(4) < share)
        plan.recomputeOps.push_back(op.id);
    plan.recompute.mode = plan.recomputeOps.empty() ? planner::RecomputeMode::None
                                                    : planner::RecomputeMode::Selective;
  }

  void decideOffload() {
    plan.offload = {};
    plan.offload.optimizer = below(4) == 0;
    int share = below(3) ? 0 : 1 + below(4); // of 4
    for (const GraphOp &op : graph.ops)
      if (op.phase == reshard::Phase::Forward && !op.generator && below(4) < share)
        plan.offload.ops.push_back(op.id);
    if (!plan.offload.ops.empty())
      plan.offload.residuals = planner::BlockShare();
  }

  /// Draws buckets of a few tensors or of all; gathers a few uses ahead or all at once.
  void decideOverlap() {
    plan.overlap.bucketBytes = below(3) ? int64_t(256) << below(14) : 0;
    plan.overlap.prefetch = below(3) ? 1 << below(7) : 0;
    plan.overlap.gatherBytes = below(3) ? int64_t(256) << below(14) : 0;
  }

  /// Puts each axis on a random loop that accepts it, or on no loop.
  OpStrategy draw(int op, OpStrategy strategy) {
    std::vector<AxisRef> order = axes;
    if (below(3) == 0)
      strategy = {}; // the batch whole, or over another axis
    else             // axes that the batch could not take may lie elsewhere
      order.erase(std::remove_if(order.begin(), order.end(),
                                 [&](const AxisRef &axis) { return isUsed(strategy, axis); }),
                  order.end());
    std::shuffle(order.begin(), order.end(), random);
    for (const AxisRef &axis : order) {
      if (below(5) == 0)
        continue;
      std::vector<OpStrategy> choices = reshard::enumerateStrategies(graph, op, strategy, axis);
      strategy = choices[below(int(choices.size()))];
    }
    return strategy;
  }

  static bool isUsed(const OpStrategy &strategy, const AxisRef &axis) {
    for (const auto &[loop, used] : strategy.loopAxes)
      if (reshard::overlap(used, axis))
        return true;
    return false;
  }

  void addDecision(int op, const OpStrategy &strategy) {
    planner::OpDecision decision;
    decision.ops = {graph.ops[op].id};
    std::map<int, planner::AxisNames> loopAxes;
    for (const auto &[loop, used] : strategy.loopAxes)
      for (const AxisRef &axis : used)
        loopAxes[loop].push_back(mesh.axes[axis.axis].name);
    decision.placement = planner::placementOf(graph, op, loopAxes);
    plan.ops.push_back(std::move(decision));
  }

  planner::ParameterDecision decideParameter() {
    planner::ParameterDecision decision;
    decision.zero = below(4);
    decision.keepGathered = decision.zero == 3 && below(2) == 0;
    for (const AxisRef &axis : dataAxes)
      (below(2) == 0 ? decision.zeroAxes : decision.reduceAxes)
          .push_back(mesh.axes[axis.axis].name);
    if (plan.mesh.cp > 1 && below(4)) // else it is added up in each micro-batch
      (below(2) == 0 ? decision.zeroAxes : decision.reduceAxes).push_back("cp");
    return decision;
  }

  planner::Plan plan;
  const Graph &graph;
  reshard::Mesh mesh;
  std::vector<AxisRef> axes, dataAxes; // without pp
  std::mt19937_64 random;
};

} // namespace

planner::Plan withRandomDecisions(planner::Plan plan, const Graph &graph, uint64_t seed) {
  return Decider(std::move(plan), graph, seed).make();
}

/// Splits the sequence over two more ranks, in any form and order that the model allows.
static void addContext(planner::Plan &plan, const Graph &graph, int64_t maxRanks,
                       std::mt19937_64 &random) {
  constexpr int64_t parts = 2;
  if (random() % 2 || plan.mesh.numRanks() * parts > maxRanks)
    return;
  std::vector<reshard::ContextForm> forms;
  for (reshard::ContextForm form : {reshard::ContextForm::Ring, reshard::ContextForm::AllGather,
                                    reshard::ContextForm::AllToAll})
    if (reshard::whyNoContext(graph, parts, form).empty())
      forms.push_back(form);
  if (forms.empty())
    return;
  plan.mesh.cp = parts;
  plan.context = forms[random() % forms.size()];
  plan.zigzag = random() % 2 && reshard::whyNoZigzag(graph, parts).empty();
}

planner::Plan randomPlan(const driver::TrainingStep &step, int64_t maxRanks, uint64_t seed) {
  std::mt19937_64 random(seed);
  planner::Plan plan;
  plan.job.modelHash = step.model.hash;
  plan.job.stepHash = step.hash;
  plan.job.loss = step.options.loss;
  plan.job.precision = *step.options.precision;
  plan.job.optimizer = step.options.optimizer;
  plan.job.settings = step.options.settings;
  plan.cluster = *planner::loadCluster("h100-sxm");
  do {
    int64_t *sizes[] = {&plan.mesh.pp, &plan.mesh.dp, &plan.mesh.fsdp, &plan.mesh.tp};
    for (int64_t *size : sizes)
      *size = random() % 2 ? 1 : 2 + int64_t(random() % 3);
  } while (plan.mesh.numRanks() > maxRanks || plan.mesh.numRanks() == 1);
  addContext(plan, step.step.graph, maxRanks, random);
  plan.microBatch = 1 + int64_t(random() % 2);
  plan.accumulation = 1 + int64_t(random() % 3);
  if (plan.mesh.pp > 1 && random() % 4 == 0)
    plan.accumulation = plan.mesh.pp; // an interleaved schedule needs a multiple
  plan.schedule.reset();
  plan.job.globalBatch = plan.microBatch * plan.accumulation * plan.mesh.dataRanks();
  plan.job.gpus = plan.mesh.numRanks();
  Graph graph = planner::withBatch(step.step.graph, plan.microBatch * plan.mesh.dataRanks());
  uint64_t seedOfDecisions = random();
  planner::Plan made = withRandomDecisions(plan, graph, seedOfDecisions);
  auto applied = planner::applyPlan(step.step.graph, made);
  // The axes drawn for an op may exclude cp; then cp is dropped.
  if (applied || applied.error().message.find("cannot be split over cp") == std::string::npos)
    return made;
  plan.mesh.cp = 1;
  plan.zigzag = false;
  plan.job.gpus = plan.mesh.numRanks();
  return withRandomDecisions(std::move(plan), graph, seedOfDecisions);
}

std::string describe(const planner::Plan &plan) {
  std::string text = planner::toString(plan.mesh) + ", micro-batch " +
                     std::to_string(plan.microBatch) + " x " + std::to_string(plan.accumulation) +
                     ", " + planner::scheduleText(plan);
  if (plan.mesh.cp > 1)
    text += std::string(", ") + reshard::name(plan.context) + (plan.zigzag ? " zigzag" : "");
  for (const std::string &stage : plan.stages)
    text += " | " + stage;
  if (!plan.recomputeOps.empty())
    text += ", " + std::to_string(plan.recomputeOps.size()) + " ops computed again";
  if (!plan.offload.isNone())
    text += ", offload " + planner::offloadText(plan.offload) + " of " +
            std::to_string(plan.offload.ops.size()) + " ops";
  if (plan.overlap.bucketBytes > 0)
    text += ", buckets of " + std::to_string(plan.overlap.bucketBytes) + " bytes";
  if (plan.overlap.gatherBytes > 0)
    text += ", gathers of " + std::to_string(plan.overlap.gatherBytes) + " bytes";
  if (plan.overlap.prefetch > 0)
    text += ", prefetch " + std::to_string(plan.overlap.prefetch);
  return text;
}

} // namespace tbc::test
