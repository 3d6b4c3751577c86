//===- DeepSpeed.cpp - A plan as DeepSpeed's JSON ---------------------------===//
//
// Keys are those of deepspeed 0.19: runtime/config.py and runtime/zero/config.py.
//
//===----------------------------------------------------------------------===//

#include "tools/export/DeepSpeed.h"

#include "planner/support/Format.h"
#include "planner/support/JsonText.h"

#include <nlohmann/json.hpp>

namespace tbc::exporter {

using nlohmann::json;
using planner::format;

/// Returns the key "optimizer". DeepSpeed's torch_adam avoids a compiled kernel that is not there.
static json optimizerOf(const PlanFacts &facts) {
  const planner::Job &job = facts.job();
  bool isAdamW = job.optimizer == planner::Optimizer::AdamW;
  if (isAdamW || job.optimizer == planner::Optimizer::Adam)
    return {{"type", isAdamW ? "AdamW" : "Adam"},
            {"params",
             {{"betas", {facts.setting("beta1", 0.9), facts.setting("beta2", 0.999)}},
              {"eps", facts.setting("epsilon", 1e-8)},
              {"weight_decay", facts.setting("weight_decay", isAdamW ? 0.01 : 0)},
              {"adam_w_mode", isAdamW}}}};
  bool hasMomentum = job.optimizer == planner::Optimizer::SgdMomentum;
  return {{"type", "SGD"},
          {"params",
           {{"momentum", facts.setting("momentum", hasMomentum ? 0.9 : 0)},
            {"nesterov", facts.setting("nesterov", 0) != 0},
            {"weight_decay", facts.setting("weight_decay", 0)}}}};
}

static void checkMesh(const PlanFacts &facts, Limits &limits) {
  const planner::MeshShape &mesh = facts.mesh();
  if (mesh.tp > 1)
    limits.refuse(format("tp=%lld; its JSON has no placements of matrices", (long long)mesh.tp),
                  "plan with tp=1, or export --to megatron or pytorch");
  if (mesh.pp > 1)
    limits.refuse(format("pp=%lld; stages and schedule are Python code there (PipelineModule)",
                         (long long)mesh.pp),
                  "plan with pp=1, or export --to megatron or torchtitan");
  if (mesh.ep > 1)
    limits.refuse(format("ep=%lld; expert parallelism is an argument of its MoE layer in Python",
                         (long long)mesh.ep),
                  "plan with ep=1");
  if (mesh.cp > 1)
    limits.refuse(
        format("cp=%lld; sequence parallelism is Python code there (Ulysses)", (long long)mesh.cp),
        "plan with cp=1");
  if (mesh.dp > 1 && facts.zero != ZeroForm::Replicated) {
    if (!facts.shardsOver(planner::Axis::Data))
      limits.refuse("states sharded over fsdp and copied over dp (hybrid sharding); DeepSpeed "
                    "shards over all data ranks",
                    "plan with fsdp alone, or with --zero over dp alone");
  }
  if (!facts.otherZero.empty())
    limits.refuse(format("%zu parameters are sharded unlike the others, such as %s",
                         facts.otherZero.size(), facts.otherZero.front().c_str()),
                  "plan with --zero");
}

static json zeroOf(const PlanFacts &facts, Limits &limits) {
  const planner::Plan &plan = *facts.plan;
  json zero;
  int stage = facts.zero == ZeroForm::Replicated ? 0 : plan.parameterDefault.zero;
  zero["stage"] = stage;
  zero["overlap_comm"] = plan.overlap.bucketBytes > 0;
  const int64_t elementBytes = facts.job().precision == planner::Precision::F32 ? 4 : 2;
  if (plan.overlap.bucketBytes > 0) {
    zero["reduce_bucket_size"] = std::max<int64_t>(1, plan.overlap.bucketBytes / elementBytes);
    zero["allgather_bucket_size"] = zero["reduce_bucket_size"];
  }
  zero["contiguous_gradients"] = true;
  if (facts.zero == ZeroForm::ShardGradOp) {
    constexpr int64_t everything = 1'000'000'000'000;
    zero["stage3_max_live_parameters"] = everything;
    zero["stage3_max_reuse_distance"] = everything;
    limits.warn("KeptParameters", "SHARD_GRAD_OP keeps gathered parameters until backward; here "
                                  "stage 3 does so by its reuse distance");
  }
  if (stage == 3)
    zero["stage3_param_persistence_threshold"] = 0;
  if (plan.offload.optimizer) {
    if (stage == 0)
      limits.refuse("offloaded states without ZeRO", "plan with --zero 1, 2 or 3");
    zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  }
  return zero;
}

/// Writes the types in which gradients are reduced and accumulated. With 16 bits DeepSpeed takes
/// those of the parameters, the plan f32. Without ZeRO it has no other.
/// Source: get_data_types and _do_optimizer_sanity_check of deepspeed/runtime/engine.py.
static void writeGradientType(const PlanFacts &facts, Limits &limits, json &config) {
  if (!facts.widensGradients())
    return;
  if (config["zero_optimization"]["stage"] != 0) {
    config["data_types"] = {{"grad_accum_dtype", "fp32"}};
    config["communication_data_type"] = "fp32";
  } else {
    limits.warn("GradientType",
                format("the plan sums gradients in f32; without ZeRO DeepSpeed does "
                       "so in %s: --zero 1 has f32",
                       planner::name(facts.job().precision)));
  }
}

Result<Exported> writeDeepSpeed(const PlanFacts &facts) {
  Limits limits("DeepSpeed");
  limits.refuseFp8(facts.job());
  const planner::Plan &plan = *facts.plan;
  checkMesh(facts, limits);
  json config;
  config["train_batch_size"] = facts.job().globalBatch;
  config["train_micro_batch_size_per_gpu"] = plan.microBatch;
  config["gradient_accumulation_steps"] = plan.accumulation;
  config["zero_optimization"] = zeroOf(facts, limits);
  if (facts.job().optimizer == planner::Optimizer::Muon)
    limits.refuse("muon; DeepSpeed's marks its matrices by other rules, with a rate of its own",
                  "plan with --optimizer adamw, or export --to megatron");
  if (facts.job().optimizer == planner::Optimizer::Adafactor ||
      facts.job().optimizer == planner::Optimizer::Adagrad ||
      facts.job().optimizer == planner::Optimizer::RowwiseAdagrad)
    limits.refuse(std::string(planner::name(facts.job().optimizer)) +
                      ", which tbc does not write for DeepSpeed",
                  "plan with --optimizer adamw");
  config["optimizer"] = optimizerOf(facts);
  config["gradient_clipping"] = facts.setting("clip_norm", 0);
  if (facts.hasSetting("clip_value"))
    limits.refuse("clipping of gradients by value", "plan with --clip-norm");
  if (facts.job().precision == planner::Precision::BF16)
    config["bf16"] = {{"enabled", true}};
  if (facts.job().precision == planner::Precision::F16) {
    bool isStatic = facts.setting("loss_scale_interval", 2000) == 0;
    double scale = facts.setting("loss_scale", 65536);
    int power = 0;
    while (double(int64_t(1) << (power + 1)) <= scale && power < 60)
      ++power;
    config["fp16"] = {{"enabled", true}, {"loss_scale", isStatic ? scale : 0.0}};
    if (!isStatic) {
      config["fp16"]["initial_scale_power"] = power;
      config["fp16"]["loss_scale_window"] = int64_t(facts.setting("loss_scale_interval", 2000));
    }
  }
  writeGradientType(facts, limits, config);
  if (plan.recompute.mode != planner::RecomputeMode::None)
    limits.warn("RecomputeInScript",
                "the plan recomputes " + planner::toString(plan.recompute) +
                    "; DeepSpeed's JSON does not switch it on: your script "
                    "wraps these blocks in deepspeed.checkpointing.checkpoint");
  if (plan.offload.residuals || !plan.offload.ops.empty())
    limits.refuse("offloaded residuals", "plan with --offload none or --offload optimizer");
  if (Status status = limits.status(); !status)
    return status.error();
  return Exported{planner::jsonText(config), limits.warnings()};
}

} // namespace tbc::exporter
