//===- SweepCases.cpp - Every strategy on every model of eight layers -----===//

#include "tests/tools/SweepCases.h"

#include "planner/graph/Recompute.h"
#include "planner/plan/PlanApply.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tbc::test {

using reshard::Graph;
using reshard::GraphOp;
using reshard::LoopKind;

namespace {

/// Returns the axes on the loops of op `op` of `graph`: those of its decision, or the batch alone.
std::map<int, planner::AxisNames> loopAxesOf(const planner::Plan &plan, const Graph &graph,
                                             int op) {
  const GraphOp &o = graph.ops[op];
  std::map<int, planner::AxisNames> loopAxes;
  const std::vector<std::string> &all = planner::axisNames();
  for (const planner::OpDecision &decision : plan.ops) {
    if (std::find(decision.ops.begin(), decision.ops.end(), o.id) == decision.ops.end())
      continue;
    auto axesOf = [&](const planner::AxisNames &names) {
      std::vector<reshard::AxisRef> axes;
      for (const std::string &name : names)
        axes.push_back({int(std::find(all.begin(), all.end(), name) - all.begin()), 1, 2});
      return axes;
    };
    reshard::OpStrategy strategy;
    EXPECT_EQ(planner::strategyFrom(graph, op, decision.placement, axesOf, strategy), "");
    for (const auto &[loop, axes] : strategy.loopAxes)
      for (const reshard::AxisRef &axis : axes)
        loopAxes[loop].push_back(all[size_t(axis.axis)]);
    return loopAxes;
  }
  planner::MeshShape mesh = plan.mesh;
  for (size_t loop = 0; loop < o.loops.size(); ++loop)
    for (const std::string &axis : planner::dataAxisNames())
      if (o.loops[loop].factor == graph.batchFactor && *mesh.find(axis) > 1)
        loopAxes[int(loop)].push_back(axis);
  return loopAxes;
}

/// Puts tp on loop `loop` of `op` and on no other.
void splitOver(planner::Plan &plan, const Graph &graph, const GraphOp &op, int loop) {
  const int index = int(&op - graph.ops.data());
  std::map<int, planner::AxisNames> loopAxes = loopAxesOf(plan, graph, index);
  for (auto &[number, axes] : loopAxes)
    axes.erase(std::remove(axes.begin(), axes.end(), "tp"), axes.end());
  loopAxes[loop].push_back("tp");
  planner::OpDecision own{planner::placementOf(graph, index, loopAxes), {op.id}};
  for (planner::OpDecision &decision : plan.ops)
    decision.ops.erase(std::remove(decision.ops.begin(), decision.ops.end(), op.id),
                       decision.ops.end());
  plan.ops.erase(
      std::remove_if(plan.ops.begin(), plan.ops.end(),
                     [](const planner::OpDecision &decision) { return decision.ops.empty(); }),
      plan.ops.end());
  plan.ops.push_back(std::move(own));
}

bool canSplit(const planner::Plan &plan, const reshard::Loop &loop) {
  return loop.kind != LoopKind::Fixed && loop.kind != LoopKind::Streamed &&
         loop.size % plan.mesh.tp == 0;
}

/// Splits embedding tables, logits, and the cross entropy's sums over classes (a classifier's
/// vocabulary).
Result<planner::Plan> splitVocabulary(planner::Plan plan, const Graph &graph) {
  reshard::FactorId vocabulary = -1;
  for (const GraphOp &op : graph.ops)
    for (const reshard::Loop &loop : op.loops)
      if (op.kind == "class_sums" && loop.kind == LoopKind::Reduction)
        vocabulary = loop.factor;
  int count = 0;
  for (const GraphOp &op : graph.ops)
    for (size_t loop = 0; loop < op.loops.size(); ++loop)
      if (op.phase == reshard::Phase::Forward && !op.generator &&
          op.loops[loop].factor == vocabulary && canSplit(plan, op.loops[loop])) {
        splitOver(plan, graph, op, int(loop));
        ++count;
        break;
      }
  if (count < 3)
    return Error{ErrorCode::Usage, "the model has no vocabulary that tp divides"};
  return plan;
}

/// Returns the factor of a sample's tokens, the second dim of an input of indices; -1 if there is
/// none.
reshard::FactorId tokensOf(const Graph &graph) {
  for (const reshard::GraphValue &value : graph.values) {
    const std::vector<reshard::DimLayout> &dims = value.layout.dims;
    if (value.role == reshard::ValueRole::Input && value.producer < 0 && !isFloat(value.dtype) &&
        dims.size() == 2 && dims[1].segments.size() == 1 && dims[1].segments[0].factors.size() == 1)
      return dims[1].segments[0].factors[0].id;
  }
  return -1;
}

/// Splits norms and elementwise ops between the matmuls of tensor parallelism by tokens.
Result<planner::Plan> splitSequence(planner::Plan plan, const Graph &graph) {
  const reshard::FactorId tokens = tokensOf(graph);
  int count = 0;
  for (const GraphOp &op : graph.ops) {
    bool isBetween = readsRegisters(op.kernelClass);
    if (op.phase != reshard::Phase::Forward || op.generator || !isBetween)
      continue;
    for (size_t loop = 0; loop < op.loops.size(); ++loop)
      if (tokens >= 0 && op.loops[loop].factor == tokens &&
          op.loops[loop].kind == LoopKind::Parallel && canSplit(plan, op.loops[loop])) {
        splitOver(plan, graph, op, int(loop));
        ++count;
        break;
      }
  }
  if (count < 8)
    return Error{ErrorCode::Usage, "the model has no sequence that tp divides"};
  return plan;
}

/// Recomputes the first half of the ops: k of n layers.
Result<planner::Plan> recomputeHalf(planner::Plan plan, const Graph &graph) {
  int numForward = planner::numForwardOps(graph);
  std::map<std::string, int> places;
  for (int op = 0; op < numForward; ++op)
    places[graph.ops[op].id] = op;
  std::vector<std::string> &ops = plan.recomputeOps;
  ops.erase(std::remove_if(ops.begin(), ops.end(),
                           [&](const std::string &id) { return places.at(id) >= numForward / 2; }),
            ops.end());
  if (ops.empty())
    return Error{ErrorCode::Usage, "nothing is computed again"};
  return plan;
}

std::vector<SweepRow> makeRows() {
  std::vector<SweepRow> rows;
  auto add = [&](const std::string &name, PlanRequest request, PlanEdit edit = nullptr,
                 std::map<std::string, std::string> excluded = {}) {
    rows.push_back({name, std::move(request), edit, std::move(excluded)});
  };
  add("serial", {"dp=1"});
  add("dp2", {"dp=2", "ddp"});
  add("dp4", {"dp=4", "ddp"});
  add("zero1", {"dp=2", "zero1"});
  add("zero2", {"dp=2", "zero2"});
  add("zero3", {"fsdp=2", "zero3"});
  add("zero3 over 4", {"fsdp=4", "zero3"});
  add("shard-grad-op", {"fsdp=2", "shard-grad-op"});
  add("hybrid-shard", {"dp=2,fsdp=2", "hybrid-shard"});
  add("tp2", {"tp=2"});
  add("tp4", {"tp=4"});
  add("vocabulary tp", {"tp=2"}, splitVocabulary);
  add("vocabulary tp with zero3", {"fsdp=2,tp=2"}, splitVocabulary);
  const std::map<std::string, std::string> withoutTokens = {{"resnet-8b", "no sequence"},
                                                            {"unet-8l", "no sequence"}};
  add("sp", {"tp=2"}, splitSequence, withoutTokens);
  add("sp with dp", {"dp=2,tp=2"}, splitSequence, withoutTokens);
  const std::map<std::string, std::string> withoutExperts = {{"gpt2-8l", "no routed experts"},
                                                             {"llama-8l", "no routed experts"},
                                                             {"resnet-8b", "no routed experts"},
                                                             {"unet-8l", "no routed experts"}};
  for (const char *mesh : {"ep=2", "ep=4", "dp=2,ep=2", "fsdp=2,ep=2", "ep=2,tp=2"})
    add(mesh, {mesh}, nullptr, withoutExperts);
  struct Schedule {
    const char *name;
    int64_t virtualStages;
    const char *placement;
  };
  for (const Schedule &s : {Schedule{"gpipe", 0, ""}, Schedule{"1f1b", 0, ""},
                            Schedule{"interleaved", 2, "loop"}, Schedule{"interleaved", 2, "v"},
                            Schedule{"zero-bubble", 1, ""}, Schedule{"zero-bubble", 2, "v"}})
    for (const char *mesh : {"pp=2", "pp=4"}) {
      PlanRequest request{mesh, "auto", s.name};
      request.virtualStages = s.virtualStages;
      request.placement = s.placement;
      add(std::string(mesh) + " " + s.name + " " + s.placement, request);
    }
  add("recompute selective", {"dp=2", "auto", "", "selective"});
  add("recompute full", {"fsdp=2", "auto", "", "full"});
  add("recompute k of n", {"dp=2", "auto", "", "full"}, recomputeHalf);
  add("recompute full with pp", {"pp=2", "auto", "1f1b", "full"});
  std::map<std::string, std::string> withoutSequence = {{"resnet-8b", "no sequence dim"},
                                                        {"unet-8l", "no sequence dim"}};
  struct Context {
    const char *mesh, *form, *order;
  };
  for (const Context &c :
       {Context{"cp=2", "ring", "contiguous"}, Context{"cp=2", "ring", "zigzag"},
        Context{"cp=2", "all-gather", "contiguous"}, Context{"cp=2", "all-gather", "zigzag"},
        Context{"cp=2", "all-to-all", "contiguous"}, Context{"cp=4", "ring", "contiguous"},
        Context{"fsdp=2,cp=2", "ring", "zigzag"},
        Context{"fsdp=2,cp=2", "all-gather", "contiguous"},
        Context{"fsdp=2,cp=2", "all-to-all", "contiguous"},
        Context{"cp=2,tp=2", "ring", "contiguous"}, Context{"pp=2,cp=2", "ring", "zigzag"}}) {
    PlanRequest request{c.mesh};
    request.context = c.form;
    request.sequenceOrder = c.order;
    std::map<std::string, std::string> excluded = withoutSequence;
    if (std::string(c.order) == "zigzag") // it has a table of learnt positions
      for (const char *model : {"gpt2-8l", "moe-8l"})
        excluded[model] = "has an entry for every place of the sequence";
    add(std::string("context ") + c.mesh + " " + c.form + " " + c.order, request, nullptr,
        std::move(excluded));
  }
  for (const char *offload : {"optimizer", "residuals", "residuals:3", "all"})
    for (const char *mesh : {"fsdp=2", "pp=2,dp=2"}) {
      PlanRequest request{mesh};
      request.offload = offload;
      add(std::string("offload ") + offload + " " + mesh, request);
    }
  PlanRequest again{"pp=2", "auto", "zero-bubble", "selective"};
  again.offload = "all";
  add("offload all zero-bubble recompute", again);
  struct Overlap {
    const char *mesh, *strategy, *bucketSize, *prefetch;
    const char *gatherSize = "none";
  };
  // A bucket of 16 KiB holds some parameters of a layer; 1 GiB holds all of a model.
  for (const Overlap &o :
       {Overlap{"dp=2", "ddp", "none", "none"}, Overlap{"dp=2", "ddp", "16KiB", "none"},
        Overlap{"dp=2", "zero1", "1GiB", "none"}, Overlap{"dp=2", "zero2", "16KiB", "none"},
        Overlap{"fsdp=2", "zero3", "none", "none"}, Overlap{"fsdp=2", "zero3", "16KiB", "1"},
        Overlap{"fsdp=2", "zero3", "1GiB", "4096"},
        Overlap{"fsdp=2", "zero3", "1GiB", "none", "1GiB"},
        Overlap{"fsdp=2", "zero3", "16KiB", "1", "16KiB"},
        Overlap{"fsdp=2", "shard-grad-op", "16KiB", "1", "64KiB"},
        Overlap{"pp=2,fsdp=2", "auto", "64KiB", "1", "64KiB"},
        Overlap{"fsdp=2", "shard-grad-op", "64KiB", "3"},
        Overlap{"dp=2,fsdp=2", "hybrid-shard", "64KiB", "2"},
        Overlap{"fsdp=2,tp=2", "auto", "64KiB", "2"},
        Overlap{"pp=2,fsdp=2", "auto", "64KiB", "2"}}) {
    PlanRequest request{o.mesh, o.strategy};
    request.bucketSize = o.bucketSize;
    request.prefetch = o.prefetch;
    request.gatherSize = o.gatherSize;
    add(std::string("overlap ") + o.mesh + " " + o.strategy + " buckets " + o.bucketSize +
            " gathers " + o.gatherSize + " prefetch " + o.prefetch,
        request);
  }
  PlanRequest parted{"pp=2,dp=2", "auto", "zero-bubble"};
  parted.bucketSize = "64KiB";
  add("buckets zero-bubble", parted);
  add("one micro-batch", {"dp=2", "auto", "", "none", 4, 8});
  for (const char *strategy : {"zero1", "zero2"})
    add(std::string("one micro-batch ") + strategy, {"dp=2", strategy, "", "none", 4, 8});
  add("one micro-batch hybrid-shard", {"dp=2,fsdp=2", "hybrid-shard", "", "none", 2, 8});
  PlanRequest small{"dp=2", "ddp", "", "none", 4, 8};
  small.bucketSize = "16KiB";
  add("one micro-batch buckets 16KiB", small);
  add("accumulation", {"dp=2", "auto", "", "none", 2, 12});
  add("dp with tp", {"dp=2,tp=2"});
  add("fsdp with tp", {"fsdp=2,tp=2"});
  add("dp with pp", {"pp=2,dp=2", "auto", "1f1b"});
  add("dp tp pp", {"pp=2,dp=2,tp=2", "auto", "1f1b"});
  add("fsdp tp pp", {"pp=2,fsdp=2,tp=2", "auto", "interleaved", "selective", 1, 8, 2, "loop"});
  return rows;
}

} // namespace

const std::vector<std::string> &sweepModels() {
  static const std::vector<std::string> models = {"gpt2-8l", "llama-8l", "resnet-8b", "unet-8l",
                                                  "moe-8l"};
  return models;
}

const std::vector<SweepRow> &sweepRows() {
  static const std::vector<SweepRow> rows = makeRows();
  return rows;
}

Result<planner::Plan> sweepPlan(const Model &model, const SweepRow &row) {
  auto plan = makePlan(model, row.request);
  if (!plan || !row.edit)
    return plan;
  return row.edit(
      *plan, planner::withBatch(model.step->step.graph, plan->microBatch * plan->mesh.dataRanks()));
}

} // namespace tbc::test
