//===- PlanWrite.cpp - Writing plan.json ----------------------------------===//

#include "planner/plan/ChunkFile.h"
#include "planner/plan/ExecutorFile.h"
#include "planner/plan/JobKeys.h"
#include "planner/plan/LayoutFile.h"
#include "planner/plan/PlanFile.h"
#include "planner/plan/PlanNames.h"
#include "planner/support/IdList.h"
#include "planner/support/JsonText.h"

#include <nlohmann/json.hpp>

namespace tbc::planner {

// Objects of this type keep their keys sorted.
using Json = nlohmann::json;

/// Writes an optional key, unless it has its default value.
template <typename Number>
static void putUnless(Json &json, const char *key, Number value, Number otherwise) {
  if (value != otherwise)
    json[key] = value;
}

static Json networkJson(const NetworkLevel &level) {
  Json json = {{"bytes_per_second", level.bytesPerSecond},
               {"latency_seconds", level.latencySeconds},
               {"start_seconds", level.startSeconds}};
  putUnless(json, "ring_step_seconds", level.ringStepSeconds, 0.0);
  putUnless(json, "small_fraction", level.smallFraction, 1.0);
  putUnless(json, "switch_bytes_per_second", level.switchBytesPerSecond, 0.0);
  return json;
}

static Json nodeNetworkJson(const NetworkLevel &level) {
  Json json = networkJson(level), groups = Json::object();
  for (const auto &[devices, bytesPerSecond] : level.groupBytesPerSecond)
    groups[std::to_string(devices)] = bytesPerSecond;
  json["group_bytes_per_second"] = groups;
  return json;
}

/// Returns the constants of a cluster with equal devices and nodes.
static Json alikeJson(const Cluster &cluster) {
  Json kernels = Json::object();
  for (const auto &[key, kernel] : cluster.kernels) {
    Json &one = kernels[kernelWord(key)] = {{"flops_fraction", kernel.flopsFraction},
                                            {"ramp_seconds", kernel.rampSeconds},
                                            {"memory_fraction", kernel.memoryFraction}};
    putUnless(one, "half_depth", kernel.halfDepth, 0.0);
    putUnless(one, "executed_fraction", kernel.executedFraction, 1.0);
    putUnless(one, "bytes_per_flop", kernel.bytesPerFlop, 0.0);
  }
  Json json = {{"name", cluster.name},
               {"description", cluster.description},
               {"devices_per_node", cluster.devicesPerNode},
               {"memory_bytes", cluster.memoryBytes},
               {"memory_bytes_per_second", cluster.memoryBytesPerSecond},
               {"peak_flops_per_second", cluster.peakFlopsPerSecond},
               {"vector_flops_per_second", cluster.vectorFlopsPerSecond},
               {"launch_seconds", cluster.launchSeconds},
               {"kernels", kernels},
               {"intra_node", nodeNetworkJson(cluster.intraNode)},
               {"inter_node", networkJson(cluster.interNode)},
               {"host",
                {{"memory_bytes", cluster.hostMemoryBytes},
                 {"bytes_per_second", cluster.hostBytesPerSecond}}},
               {"overlap_fraction", cluster.overlapFraction},
               {"time_uncertainty", cluster.timeUncertainty},
               {"context_bytes", cluster.contextBytes},
               {"allocator_fraction", cluster.allocatorFraction},
               {"reserved_fraction", cluster.reservedFraction}};
  if (!cluster.executor.isOwn())
    json["executor"] = executorJson(cluster.executor);
  putUnless(json, "floor_seconds", cluster.floorSeconds, 0.0);
  putUnless(json, "overlap_slowdown", cluster.overlapSlowdown, 0.0);
  putUnless(json, "time_factor", cluster.timeFactor, 1.0);
  putUnless(json, "context_uncertainty_bytes", cluster.contextUncertaintyBytes, int64_t(0));
  putUnless(json, "allocator_uncertainty", cluster.allocatorUncertainty, 0.0);
  putUnless(json, "kernel_workspace", cluster.hasKernelWorkspace, true);
  return json;
}

/// For a cluster with groups, writes only the constants of the groups; its own are derived from
/// them.
static Json clusterJson(const Cluster &cluster) {
  if (cluster.groups.empty())
    return alikeJson(cluster);
  Json groups = Json::array();
  for (const Cluster &group : cluster.groups)
    groups.push_back({{"nodes", group.numNodes}, {"cluster", alikeJson(group)}});
  Json json = {{"name", cluster.name}, {"description", cluster.description}, {"groups", groups}};
  if (cluster.betweenGroups)
    json["between_groups"] = networkJson(*cluster.betweenGroups);
  return json;
}

std::string writeCluster(const Cluster &cluster) { return jsonText(clusterJson(cluster)); }

static Json meshJson(const MeshShape &mesh) {
  Json json = Json::object();
  for (auto [name, size] : mesh.axes())
    json[name] = size;
  return json;
}

static Json parameterJson(const ParameterDecision &decision) {
  return {{"zero", decision.zero},
          {"keep_gathered", decision.keepGathered},
          {"zero_axes", decision.zeroAxes},
          {"reduce_axes", decision.reduceAxes}};
}

static Json linesJson(const std::vector<MemoryLine> &lines) {
  Json json = Json::array();
  for (const MemoryLine &line : lines)
    json.push_back({{"name", line.name}, {"bytes", line.bytes}});
  return json;
}

static Json predictionJson(const Prediction &prediction) {
  Json stages = Json::array(), collectives = Json::array();
  for (const StageMemory &stage : prediction.stages) {
    stages.push_back({{"memory", linesJson(stage.lines)}, {"host", linesJson(stage.host)}});
  }
  for (const CollectiveLine &line : prediction.collectives)
    collectives.push_back({{"kind", reshard::name(line.count.kind)},
                           {"axes", line.count.axes},
                           {"stage", line.count.stage},
                           {"bytes", line.count.bytes},
                           {"count", line.count.count},
                           {"seconds", line.seconds}});
  Json json = {{"low_seconds", prediction.lowSeconds},
               {"high_seconds", prediction.highSeconds},
               {"low_bytes", prediction.lowBytes},
               {"high_bytes", prediction.highBytes},
               {"limit_bytes", prediction.limitBytes},
               {"host_bytes", prediction.hostBytes},
               {"host_limit_bytes", prediction.hostLimitBytes},
               {"model_flops", prediction.modelFlops},
               {"mfu", prediction.mfu},
               {"slowest_stage", prediction.slowestStage},
               {"stage_seconds", prediction.stageSeconds},
               {"stages", stages},
               {"collectives", collectives}};
  for (const TimeRow &row : timeRows())
    json["time"][row.key] = prediction.time.*row.seconds;
  json["time"]["hidden_data"] = prediction.time.hiddenData;
  if (!prediction.chunks.empty())
    json["chunks"] = chunksJson(prediction.chunks);
  return json;
}

static Json alternativeJson(const Alternative &other) {
  Json json = {{"mesh", meshJson(other.mesh)},
               {"parameters", parameterJson(other.data)},
               {"micro_batch", other.microBatch},
               {"accumulation", other.accumulation},
               {"schedule", scheduleWord(other.schedule)},
               {"recompute", toString(other.recompute)},
               {"offload", offloadText(other.offload)},
               {"step_seconds", other.stepSeconds},
               {"peak_bytes", other.peakBytes},
               {"fits", other.memory != MemoryVerdict::DoesNotFit},
               {"memory", name(other.memory)},
               {"note", other.note}};
  if (!other.chunkStage.empty())
    json["placement"] = other.chunkStage;
  if (other.mesh.cp > 1)
    json["context"] = reshard::name(other.context);
  return json;
}

static Json blockJson(const BlockRow &row) {
  return {{"name", row.name},
          {"first_op", row.firstOp},
          {"count", row.count},
          {"ops", row.ops},
          {"parameters", row.parameters},
          {"split", row.split},
          {"seconds", row.seconds},
          {"residual_bytes", row.residualBytes}};
}

static Json planJson(const Plan &plan) {
  Json strategies = Json::array(), overrides = Json::array(), alternatives = Json::array(),
       blocks = Json::array(), reasons = Json::array();
  for (const OpDecision &decision : plan.ops) {
    Json json = {{"ops", compressIds(decision.ops)}};
    putPlacement(decision.placement, json);
    strategies.push_back(json);
  }
  for (const ParameterOverride &entry : plan.parameterOverrides) {
    Json json = parameterJson(entry.decision);
    json["names"] = compressIds(entry.parameters);
    overrides.push_back(json);
  }
  for (const Alternative &other : plan.alternatives)
    alternatives.push_back(alternativeJson(other));
  for (const BlockRow &row : plan.blocks)
    blocks.push_back(blockJson(row));
  for (const Reason &reason : plan.reasons)
    reasons.push_back({{"decision", reason.decision},
                       {"value", reason.value},
                       {"origin", name(reason.origin)},
                       {"text", reason.text}});
  Json json = {
      {"format", "tbc-plan"},
      {"version", planVersion},
      {"model", modelJson(plan.job)},
      {"job", jobJson(plan.job)},
      {"cluster", clusterJson(plan.cluster)},
      {"mesh", meshJson(plan.mesh)},
      {"idle_devices", plan.idleDevices},
      {"memory_limit_bytes", plan.memoryLimitBytes},
      {"micro_batch", plan.microBatch},
      {"accumulation", plan.accumulation},
      {"schedule", scheduleWord(plan.schedule)},
      {"stages", plan.stages},
      {"stage_names", plan.stageNames},
      {"strategies", strategies},
      {"parameters", {{"default", parameterJson(plan.parameterDefault)}, {"overrides", overrides}}},
      {"recompute", {{"mode", toString(plan.recompute)}, {"ops", compressIds(plan.recomputeOps)}}},
      {"offload",
       {{"optimizer", plan.offload.optimizer},
        {"residuals", residualsText(plan.offload.residuals)},
        {"ops", compressIds(plan.offload.ops)}}},
      {"bucket_bytes", plan.overlap.bucketBytes},
      {"prefetch", plan.overlap.prefetch},
      {"step_seconds", plan.prediction.stepSeconds},
      {"peak_bytes", plan.prediction.peakBytes},
      {"fits", plan.prediction.memory != MemoryVerdict::DoesNotFit},
      {"memory", name(plan.prediction.memory)},
      {"prediction", predictionJson(plan.prediction)},
      {"lower_bound_seconds", plan.lowerBoundSeconds},
      {"binding_constraint", plan.bindingConstraint},
      {"blocks", blocks},
      {"alternatives", alternatives},
      {"warnings", plan.warnings},
      {"assumptions", plan.assumptions},
      {"reasons", reasons}};
  if (plan.searchEnd != SearchEnd::Complete)
    json["search_end"] = name(plan.searchEnd);
  if (!plan.search.isEmpty())
    json["search"] = searchJson(plan.search);
  if (!plan.chunkStage.empty())
    json["placement"] = plan.chunkStage;
  if (plan.mesh.cp > 1) {
    json["context"] = reshard::name(plan.context);
    json["sequence_order"] = plan.zigzag ? "zigzag" : "contiguous";
  }
  if (plan.overlap.gatherBytes > 0)
    json["gather_bytes"] = plan.overlap.gatherBytes;
  if (!plan.layout.isEmpty())
    json["layout"] = layoutJson(plan.layout);
  return json;
}

std::string writePlan(const Plan &plan) { return jsonText(planJson(plan)); }

/// The keys of plan.json that a person decides, or could decide, by hand.
static const char *const decisionKeys[] = {
    "model",     "job",      "mesh",         "micro_batch",  "accumulation",  "schedule",
    "placement", "context",  "stages",       "strategies",   "parameters",    "recompute",
    "offload",   "prefetch", "bucket_bytes", "gather_bytes", "sequence_order"};

std::string decisionsFingerprint(const Plan &plan) {
  const Json whole = planJson(plan);
  Json decisions = Json::object();
  for (const char *key : decisionKeys)
    if (whole.contains(key))
      decisions[key] = whole.at(key);
  // A plan that is moved keeps its decisions.
  decisions["model"].erase("path");
  uint64_t hash = 0xcbf29ce484222325; // FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/
  for (unsigned char letter : jsonText(decisions))
    hash = (hash ^ letter) * 0x100000001b3;
  std::string text(16, '0');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = "0123456789abcdef"[(hash >> (60 - 4 * i)) & 15];
  return text;
}

std::string whyLayoutIsStale(const Plan &plan) {
  if (plan.layout.isEmpty())
    return "the plan has no key \"layout\"; tbc explain PLAN --derive FILE writes it";
  if (plan.layout.decisions != decisionsFingerprint(plan))
    return "its decisions were edited after its key \"layout\" was written; tbc explain PLAN "
           "--derive FILE writes it again";
  return "";
}

} // namespace tbc::planner
