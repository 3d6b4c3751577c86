//===- Lightning.cpp - A plan as a Lightning Trainer ------------------------===//
//
// Arguments are those of lightning 2.6: pytorch/strategies and pytorch/trainer/trainer.py.
//
//===----------------------------------------------------------------------===//

#include "tools/export/Lightning.h"

#include "planner/support/Format.h"

namespace tbc::exporter {

using planner::format;

static void checkMesh(const PlanFacts &facts, Limits &limits) {
  const planner::MeshShape &mesh = facts.mesh();
  for (planner::Axis axis :
       {planner::Axis::Pipeline, planner::Axis::Expert, planner::Axis::Context})
    if (mesh.of(axis) > 1)
      limits.refuse(format("%s=%lld", mesh::row(axis).name, (long long)mesh.of(axis)),
                    "plan with " + std::string(mesh::row(axis).name) +
                        "=1, or export --to torchtitan");
  if (mesh.tp > 1)
    limits.refuse(format("tp=%lld; ModelParallelStrategy makes a mesh, and the module has the "
                         "placements",
                         (long long)mesh.tp),
                  "plan with tp=1, or export --to pytorch and call it in configure_model");
  if (!facts.otherZero.empty())
    limits.refuse(format("%zu parameters are sharded unlike the others, such as %s",
                         facts.otherZero.size(), facts.otherZero.front().c_str()),
                  "plan with --zero");
  const planner::Plan &plan = *facts.plan;
  bool isHybrid = mesh.dp > 1 && mesh.fsdp > 1;
  bool isZero12 = facts.zero == ZeroForm::Zero1 || facts.zero == ZeroForm::Zero2;
  if (isHybrid && isZero12)
    limits.refuse(std::string(name(facts.zero)) + " over fsdp with copies over dp",
                  "plan with fsdp alone");
  if (plan.recompute.mode == planner::RecomputeMode::Selective || !plan.recompute.share.isAll())
    limits.refuse("recompute " + planner::toString(plan.recompute) +
                      "; Lightning checkpoints whole modules by class",
                  "plan with --recompute full or none");
  if (plan.offload.residuals || !plan.offload.ops.empty() || (plan.offload.optimizer && !isZero12))
    limits.refuse("offload of " + planner::offloadText(plan.offload),
                  "plan with --offload none; or optimizer, with --zero 1 or 2");
}

/// Returns the expression of the strategy.
static std::string strategyOf(const PlanFacts &facts, Limits &limits) {
  const planner::MeshShape &mesh = facts.mesh();
  bool recomputes = facts.plan->recompute.mode == planner::RecomputeMode::Full;
  if (facts.zero == ZeroForm::Zero1 || facts.zero == ZeroForm::Zero2) {
    if (recomputes)
      limits.warn("RecomputeInScript", "the plan recomputes all blocks: your module calls "
                                       "deepspeed.checkpointing.checkpoint");
    if (facts.widensGradients())
      limits.warn("GradientType", "the plan sums gradients in f32, DeepSpeed in 16 bits unless its "
                                  "file says otherwise: --to deepspeed writes one for "
                                  "DeepSpeedStrategy(config=...)");
    limits.warn("DeepSpeedPackage",
                "Lightning has " + std::string(name(facts.zero)) + " by the package deepspeed");
    return format("DeepSpeedStrategy(stage=%d, offload_optimizer=%s)",
                  facts.zero == ZeroForm::Zero1 ? 1 : 2,
                  facts.plan->offload.optimizer ? "True" : "False");
  }
  if (facts.zero == ZeroForm::Replicated) {
    if (recomputes)
      limits.warn("RecomputeInScript",
                  "the plan recomputes all blocks: your module calls torch.utils.checkpoint");
    if (mesh.numRanks() == 1)
      return "SingleDeviceStrategy()";
    if (facts.plan->overlap.bucketBytes == 0)
      return "DDPStrategy(bucket_cap_mb=1)";
    return format("DDPStrategy(bucket_cap_mb=%g)",
                  double(facts.plan->overlap.bucketBytes) / (1 << 20));
  }
  bool isHybrid = mesh.dp > 1;
  bool isFull = facts.zero == ZeroForm::Zero3;
  if (facts.widensGradients())
    limits.warn("GradientType", "the plan reduces gradients in f32, FSDP in 16 bits: give "
                                "FSDPStrategy a mixed_precision with reduce_dtype=torch.float32");
  limits.warn("GatherUnit", "FSDP gathers a block together, the plan each parameter by itself");
  std::string text = "FSDPStrategy(\n            auto_wrap_policy={block},\n";
  if (recomputes)
    text += "            activation_checkpointing_policy={block},\n";
  text += std::string("            sharding_strategy=") +
          (isHybrid ? (isFull ? "\"HYBRID_SHARD\"" : "\"_HYBRID_SHARD_ZERO2\"")
                    : (isFull ? "\"FULL_SHARD\"" : "\"SHARD_GRAD_OP\"")) +
          ",\n";
  if (isHybrid)
    text +=
        format("            device_mesh=(%lld, %lld),\n", (long long)mesh.dp, (long long)mesh.fsdp);
  return text + "        )";
}

Result<Exported> writeLightning(const PlanFacts &facts) {
  Limits limits("Lightning");
  limits.refuseFp8(facts.job());
  const planner::Plan &plan = *facts.plan;
  checkMesh(facts, limits);
  std::string strategy = strategyOf(facts, limits);
  limits.warn("BatchInScript",
              format("your data loader has batch_size=%lld", (long long)plan.microBatch));
  if (Status status = limits.status(); !status)
    return status.error();
  using planner::Precision;
  Precision precision = facts.job().precision;
  bool isFsdp = strategy.rfind("FSDP", 0) == 0;
  std::string kind = strategy.substr(0, strategy.find('('));
  std::string text = header(facts, limits.warnings(), "#");
  text += "from lightning.pytorch import Trainer\n"
          "from lightning.pytorch.strategies import " +
          kind + "\n\n" + format("BATCH_SIZE = %lld\n", (long long)plan.microBatch) + "\n\n";
  text += "def make_trainer(" + std::string(isFsdp ? "block, " : "") +
          "accelerator=\"gpu\", **others):\n";
  text += std::string("    \"\"\"Returns the plan's Trainer.") +
          (isFsdp ? " `block`: the class of the model's blocks (" + facts.blockPath + ".*)."
                  : std::string()) +
          "\"\"\"\n    return Trainer(\n        accelerator=accelerator,\n";
  auto field = [&](const std::string &name, const std::string &value) {
    text += "        " + name + "=" + value + ",\n";
  };
  if (kind != "SingleDeviceStrategy")
    field("strategy", strategy);
  field("devices", std::to_string(facts.perNode()));
  field("num_nodes", std::to_string(facts.nodes()));
  field("precision", precision == Precision::BF16  ? "\"bf16-mixed\""
                     : precision == Precision::F16 ? "\"16-mixed\""
                                                   : "\"32-true\"");
  field("accumulate_grad_batches", std::to_string(plan.accumulation));
  bool byNorm = facts.hasSetting("clip_norm"), byValue = facts.hasSetting("clip_value");
  if (byNorm || byValue) {
    field("gradient_clip_val", format("%g", facts.setting(byNorm ? "clip_norm" : "clip_value", 0)));
    field("gradient_clip_algorithm", byNorm ? "\"norm\"" : "\"value\"");
  }
  text += "        **others,\n    )\n";
  if (kind == "SingleDeviceStrategy") {
    size_t at = text.find("from lightning.pytorch.strategies");
    text.erase(at, text.find('\n', at) - at + 1);
  }
  return Exported{text, limits.warnings()};
}

} // namespace tbc::exporter
