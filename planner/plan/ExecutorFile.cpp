//===- ExecutorFile.cpp - The executor in plan.json ------------------------===//

#include "planner/plan/ExecutorFile.h"

#include <nlohmann/json.hpp>

namespace tbc::planner {

using Json = nlohmann::json;

static Json plansJson(const RunnablePlans &plans) {
  return {{"axes", plans.axes},
          {"zero", plans.zero},
          {"schedules", plans.schedules},
          {"contexts", plans.contexts},
          {"hybrid_sharding", plans.shardsInGroups},
          {"chunks_in_v", plans.placesInV},
          {"stages_cut_layers", plans.cutsLayers},
          {"recompute", toString(plans.recompute)}};
}

static Json fp8Json(const Fp8Rule &rule) {
  return {{"exists", rule.exists},
          {"linear_only", rule.linearOnly},
          {"rounds_once", rule.roundsOnce},
          {"reads", rule.reads},
          {"written_bytes", rule.writtenBytes},
          {"launches", rule.launches},
          {"weight_bytes", rule.weightBytes}};
}

/// Plans of earlier builds have no such object, and no matmuls in 8 bits.
static Fp8Rule readFp8(JsonObject &executor, KeyProblem &problem) {
  Fp8Rule rule;
  if (!executor.has("fp8"))
    return rule;
  JsonObject object(executor.get("fp8"), executor.at("fp8"), problem);
  rule.exists = object.flag("exists");
  rule.linearOnly = object.flag("linear_only");
  rule.roundsOnce = object.flag("rounds_once");
  rule.reads = object.number("reads");
  rule.writtenBytes = object.number("written_bytes");
  rule.launches = object.number("launches");
  rule.weightBytes = object.number("weight_bytes");
  return rule;
}

/// Plans of earlier builds have no such object: then all plans are runnable.
static RunnablePlans readPlans(JsonObject &executor, KeyProblem &problem) {
  RunnablePlans plans;
  if (!executor.has("plans"))
    return plans;
  JsonObject object(executor.get("plans"), executor.at("plans"), problem);
  plans.axes = object.texts("axes");
  plans.zero = object.texts("zero");
  plans.schedules = object.texts("schedules");
  plans.contexts = object.texts("contexts");
  plans.shardsInGroups = object.flag("hybrid_sharding");
  plans.placesInV = object.flag("chunks_in_v");
  plans.cutsLayers = object.flag("stages_cut_layers");
  plans.recompute = parseRecomputeShare(object.word("recompute", {"any", "even", "all"}))
                        .value_or(RecomputeShare::Any);
  return plans;
}

Json executorJson(const Executor &executor) {
  return {{"name", executor.name},
          {"host_seconds", executor.hostSeconds},
          {"group_wait", executor.groupWait},
          {"message_seconds", executor.messageSeconds},
          {"last_backward", executor.lastBackward},
          {"last_backward_zero", executor.lastBackwardZero},
          {"joined_gathers", executor.joinedGathers},
          {"joined_updates", executor.joinsUpdates},
          {"gather_rank_seconds", executor.gatherRankSeconds},
          {"gather_moved", executor.gatherMoved},
          {"scatter_moved", executor.scatterMoved},
          {"recomputes_blocks", executor.recomputesBlocks},
          {"gathers_again", executor.gathersAgain},
          {"tensor_parallel", toString(executor.tensorParallel)},
          {"hidden_operands", executor.hiddenOperands},
          {"residual_factor", executor.residualFactor},
          {"split_residual_factor", executor.splitResidualFactor},
          {"queued_scatters", executor.queuedScatters},
          {"logit_bytes", executor.logitBytes},
          {"logit_moved_bytes", executor.logitMovedBytes},
          {"gradient_width", executor.gradientWidth},
          {"stores_weights", executor.storesWeights},
          {"gradient_bytes", executor.gradientBytes},
          {"parameter_bytes", executor.parameterBytes},
          {"data_parallel_bytes", executor.dataParallelBytes},
          {"fp8", fp8Json(executor.fp8)},
          {"plans", plansJson(executor.plans)}};
}

Executor readExecutor(JsonObject &cluster, KeyProblem &problem) {
  JsonObject object(cluster.get("executor"), cluster.at("executor"), problem);
  Executor executor;
  executor.name = object.text("name");
  executor.hostSeconds = object.numberOr("host_seconds", 0);
  executor.groupWait = object.numberOr("group_wait", 0);
  executor.messageSeconds = object.numberOr("message_seconds", 0);
  executor.lastBackward = object.numberOr("last_backward", 0);
  if (object.has("last_backward_zero"))
    executor.lastBackwardZero = object.integer("last_backward_zero", 0, 1);
  executor.joinedGathers = object.integer("joined_gathers", 1, 1 << 20);
  executor.joinsUpdates = object.has("joined_updates") && object.flag("joined_updates");
  executor.gatherRankSeconds = object.numberOr("gather_rank_seconds", 0);
  executor.gatherMoved = object.numberOr("gather_moved", 0);
  executor.scatterMoved = object.numberOr("scatter_moved", 0);
  executor.recomputesBlocks = object.flag("recomputes_blocks");
  executor.gathersAgain = object.has("gathers_again") && object.flag("gathers_again");
  const std::string layout = object.word("tensor_parallel", {"any", "megatron", "megatron-sp"});
  executor.tensorParallel = parseTensorParallel(layout).value_or(TensorParallel::Any);
  executor.hiddenOperands = object.number("hidden_operands", 1);
  executor.residualFactor = object.number("residual_factor");
  executor.splitResidualFactor = object.numberOr("split_residual_factor", 0);
  if (object.has("queued_scatters"))
    executor.queuedScatters = object.integer("queued_scatters", 0, 1 << 20);
  executor.logitBytes = object.number("logit_bytes");
  executor.logitMovedBytes = object.number("logit_moved_bytes");
  executor.gradientWidth = object.number("gradient_width");
  executor.storesWeights = !object.has("stores_weights") || object.flag("stores_weights");
  executor.gradientBytes = object.number("gradient_bytes");
  executor.parameterBytes = object.number("parameter_bytes");
  executor.dataParallelBytes = object.number("data_parallel_bytes");
  executor.fp8 = readFp8(object, problem);
  executor.plans = readPlans(object, problem);
  return executor;
}

} // namespace tbc::planner
