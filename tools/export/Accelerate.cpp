//===- Accelerate.cpp - A plan as accelerate's YAML -------------------------===//
//
// Keys are those of accelerate 1.15: commands/config/config_args.py and parallelism_config.py.
//
//===----------------------------------------------------------------------===//

#include "tools/export/Accelerate.h"

#include "planner/support/Format.h"

namespace tbc::exporter {

using planner::format;

static void checkPlan(const PlanFacts &facts, Limits &limits) {
  const planner::MeshShape &mesh = facts.mesh();
  const planner::Plan &plan = *facts.plan;
  if (mesh.pp > 1)
    limits.refuse(format("pp=%lld; accelerate trains without pipelines", (long long)mesh.pp),
                  "plan with pp=1, or export --to megatron or torchtitan");
  if (mesh.ep > 1)
    limits.refuse(format("ep=%lld", (long long)mesh.ep), "plan with ep=1");
  if (facts.zero == ZeroForm::Zero1 || facts.zero == ZeroForm::Zero2)
    limits.refuse(std::string(name(facts.zero)) + "; accelerate has DDP and FSDP2",
                  "plan with --strategy fsdp, shard-grad-op or ddp, or export --to deepspeed");
  if (!facts.otherZero.empty())
    limits.refuse(format("%zu parameters are sharded unlike the others, such as %s",
                         facts.otherZero.size(), facts.otherZero.front().c_str()),
                  "plan with --zero");
  if (facts.shardsOver(planner::Axis::Data) && mesh.dp > 1)
    limits.refuse("parameters that are sharded over dp", "plan with fsdp instead of dp");
  if (facts.zero == ZeroForm::Replicated && mesh.fsdp > 1)
    limits.refuse("replicated parameters over fsdp", "plan with dp instead of fsdp");
  if (facts.zero == ZeroForm::Replicated && mesh.dp > 1 && (mesh.tp > 1 || mesh.cp > 1))
    limits.refuse("replicas beside tp or cp; accelerate has them with FSDP alone",
                  "plan with fsdp instead of dp");
  if (mesh.cp > 1 && plan.context == reshard::ContextForm::Ring)
    limits.refuse("ring attention", "plan with --context all-gather");
  if (mesh.cp > 1 && plan.context == reshard::ContextForm::AllToAll)
    limits.refuse("all-to-all context parallelism", "plan with --context all-gather");
  if (mesh.cp > 1 && !plan.zigzag)
    limits.warn("ContextOrder",
                "the plan has contiguous sequences over cp; torch has zigzag order");
  if (plan.offload.optimizer || plan.offload.residuals || !plan.offload.ops.empty())
    limits.refuse("offload of " + planner::offloadText(plan.offload) +
                      "; FSDP2 offloads parameters, gradients and states together",
                  "plan with --offload none");
  if (mesh.tp > 1)
    limits.warn("TensorForm",
                "the model's own tp_plan decides how matrices are split, not the plan");
  if (plan.recompute.mode != planner::RecomputeMode::None &&
      (!plan.recompute.share.isAll() || plan.recompute.mode == planner::RecomputeMode::Selective))
    limits.refuse("recompute " + planner::toString(plan.recompute) +
                      "; accelerate recomputes all blocks fully, or none",
                  "plan with --recompute full or none");
  if (plan.recompute.mode == planner::RecomputeMode::Full && facts.zero == ZeroForm::Replicated)
    limits.warn("RecomputeInScript",
                "the plan recomputes all blocks; without FSDP your script calls "
                "model.gradient_checkpointing_enable()");
}

Result<Exported> writeAccelerate(const PlanFacts &facts) {
  Limits limits("accelerate");
  limits.refuseFp8(facts.job());
  const planner::MeshShape &mesh = facts.mesh();
  const planner::Plan &plan = *facts.plan;
  checkPlan(facts, limits);
  bool isSharded = facts.zero != ZeroForm::Replicated || mesh.tp > 1 || mesh.cp > 1;
  limits.warn("BatchInScript",
              format("your script has the batch: %lld samples of each rank in a micro-batch, "
                     "gradient_accumulation_steps=%lld",
                     (long long)plan.microBatch, (long long)plan.accumulation));
  if (isSharded && facts.zero != ZeroForm::Replicated)
    limits.warn("WrapPolicy", "FSDP's units are the blocks that the model names in "
                              "_no_split_modules; the plan gathers each parameter by itself");
  if (facts.zero != ZeroForm::Replicated && facts.widensGradients())
    limits.warn("GradientType", "the plan reduces gradients in f32, accelerate's FSDP in 16 bits: "
                                "your script sets reduce_dtype in the plugin's "
                                "mixed_precision_policy");
  if (facts.hasSetting("clip_norm") || facts.hasSetting("clip_value"))
    limits.warn("ClippingInScript",
                "your script clips gradients, with accelerator.clip_grad_norm_");
  if (Status status = limits.status(); !status)
    return status.error();

  std::string text = header(facts, limits.warnings(), "#");
  auto line = [&](const std::string &key, const std::string &value) {
    text += key + ": " + value + "\n";
  };
  auto number = [](int64_t value) { return std::to_string(value); };
  line("compute_environment", "LOCAL_MACHINE");
  line("distributed_type", isSharded ? "FSDP" : mesh.numRanks() > 1 ? "MULTI_GPU" : "'NO'");
  using planner::Precision;
  Precision precision = facts.job().precision;
  line("mixed_precision", precision == Precision::BF16  ? "bf16"
                          : precision == Precision::F16 ? "fp16"
                                                        : "'no'");
  line("num_machines", number(facts.nodes()));
  line("num_processes", number(mesh.numRanks()));
  line("machine_rank", "0");
  line("main_training_function", "main");
  line("rdzv_backend", facts.nodes() > 1 ? "c10d" : "static");
  line("same_network", "true");
  line("use_cpu", "false");
  line("debug", "false");
  line("downcast_bf16", "'no'");
  line("enable_cpu_affinity", "false");
  if (!isSharded)
    return Exported{text, limits.warnings()};
  text += "fsdp_config:\n";
  line("  fsdp_version", "2");
  line("  fsdp_reshard_after_forward", facts.zero == ZeroForm::Zero3 ? "true" : "false");
  line("  fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
  line("  fsdp_offload_params", "false");
  line("  fsdp_cpu_ram_efficient_loading", "true");
  line("  fsdp_state_dict_type", "SHARDED_STATE_DICT");
  line("  fsdp_activation_checkpointing",
       plan.recompute.mode == planner::RecomputeMode::Full ? "true" : "false");
  text += "parallelism_config:\n";
  line("  parallelism_config_dp_replicate_size", number(mesh.dp));
  line("  parallelism_config_dp_shard_size", number(mesh.fsdp));
  line("  parallelism_config_tp_size", number(mesh.tp));
  line("  parallelism_config_cp_size", number(mesh.cp));
  if (mesh.cp > 1)
    line("  parallelism_config_cp_comm_strategy", "allgather");
  return Exported{text, limits.warnings()};
}

} // namespace tbc::exporter
