//===- Torchtitan.cpp - A plan as a configuration module of torchtitan ------===//
//
// Fields are those of torchtitan 0.3: config/configs.py and distributed/activation_checkpoint.py.
//
//===----------------------------------------------------------------------===//

#include "tools/export/Torchtitan.h"

#include "planner/support/Format.h"

namespace tbc::exporter {

using planner::format;

/// Returns torch's name of the schedule, or "" after refusing it.
static std::string scheduleName(const PlanFacts &facts, Limits &limits) {
  bool isVee = facts.isVee();
  if (!isVee && !facts.isLooped()) {
    limits.refuse("chunks that lie neither in loops nor in a V shape",
                  "plan with --placement loop");
    return "";
  }
  auto kind = *facts.plan->schedule;
  if (kind == planner::ScheduleKind::ZeroBubble)
    return isVee ? "ZBVZeroBubble" : "InterleavedZeroBubble";
  if (isVee) {
    limits.refuse("a V shape of " + planner::scheduleText(*facts.plan),
                  "plan with --placement loop or --schedule zero-bubble");
    return "";
  }
  if (kind == planner::ScheduleKind::GPipe)
    return "GPipe";
  return kind == planner::ScheduleKind::OneFOneB ? "1F1B" : "Interleaved1F1B";
}

/// Returns the modules of each chunk in torchtitan's names, as a Python list.
static std::string moduleParts(const PlanFacts &facts) {
  std::string text = "[";
  for (size_t chunk = 0; chunk < facts.chunks.size(); ++chunk) {
    std::string line;
    auto add = [&](const std::string &name) {
      line += (line.empty() ? "" : ", ") + pythonText(name);
    };
    if (chunk == 0)
      add("tok_embeddings");
    for (int64_t block : facts.chunks[chunk].blocks)
      add("layers." + std::to_string(block));
    if (chunk + 1 == facts.chunks.size()) {
      add("norm");
      add("lm_head");
    }
    text += "\n            [" + line + "],";
  }
  return text + "\n        ]";
}

static std::string checkpointing(const PlanFacts &facts, Limits &limits) {
  const planner::Recompute &recompute = facts.plan->recompute;
  if (recompute.mode == planner::RecomputeMode::None)
    return "None";
  if (!recompute.share.isAll())
    limits.refuse("recompute of a part of the blocks (" + planner::toString(recompute) +
                      "); torchtitan recomputes all alike",
                  "plan with --recompute full, selective or none");
  if (recompute.mode == planner::RecomputeMode::Full)
    return "FullAC.Config()";
  limits.warn("RecomputeForm", "torchtitan's SelectiveAC also keeps or recomputes single ops by a "
                               "list of its own; the plan keeps matmuls and attention");
  return "SelectiveAC.Config()";
}

static void checkSharding(const PlanFacts &facts, Limits &limits) {
  if (!facts.otherZero.empty())
    limits.refuse(format("%zu parameters are sharded unlike the others, such as %s",
                         facts.otherZero.size(), facts.otherZero.front().c_str()),
                  "plan with --zero");
  const planner::MeshShape &mesh = facts.mesh();
  if (facts.zero == ZeroForm::Zero1 || facts.zero == ZeroForm::Zero2)
    limits.refuse(std::string(name(facts.zero)) + "; torchtitan has DDP and FSDP",
                  "plan with --strategy fsdp, shard-grad-op or ddp");
  if (facts.zero == ZeroForm::Replicated && mesh.fsdp * mesh.ep > 1)
    limits.refuse("replicated parameters over fsdp", "plan with dp instead of fsdp");
  if (facts.shardsOver(planner::Axis::Data) && mesh.dp > 1)
    limits.refuse("parameters that are sharded over dp", "plan with fsdp instead of dp");
  if (mesh.dp > 1 && mesh.fsdp * mesh.cp == 1 && (mesh.tp > 1 || mesh.pp > 1))
    limits.warn("ReplicaPrecision", "torchtitan replicates parameters beside tp or pp as FSDP over "
                                    "one rank");
  if (mesh.cp > 1 && !facts.shardsOver(planner::Axis::Context))
    limits.warn("ContextSharding", "torchtitan shards parameters over cp too, the plan has copies");
  if (facts.residual == ResidualForm::Other)
    limits.refuse("activations between blocks that are split over tp by width",
                  "plan with another mesh, or export --to pytorch");
}

/// torchtitan's models have a plan of their own for tp. Names what the plan splits otherwise.
static void checkMatrices(const PlanFacts &facts, Limits &limits) {
  if (facts.mesh().tp == 1)
    return;
  std::string whole;
  for (const planner::LayoutParameters &group : facts.plan->layout.parameters)
    if (group.shape.size() >= 2 && splitOverTensorAxis(group) == MatrixSplit::Whole &&
        facts.blockOf(group.names.front()) >= 0)
      whole = group.names.front();
  if (!whole.empty())
    limits.refuse(whole + " is whole on every rank of tp; torchtitan's models split all matrices "
                          "of blocks",
                  "plan with --pin '" + whole + "=tp'");
}

Result<Exported> writeTorchtitan(const PlanFacts &facts) {
  Limits limits("torchtitan");
  const planner::MeshShape &mesh = facts.mesh();
  const planner::Plan &plan = *facts.plan;
  checkSharding(facts, limits);
  checkMatrices(facts, limits);
  if (facts.job().precision == planner::Precision::F16)
    limits.refuse("f16", "plan with --precision bf16 or f32");
  if (facts.hasSetting("clip_value"))
    limits.refuse("clipping of gradients by value", "plan with --clip-norm");
  if (plan.offload.optimizer || plan.offload.residuals || !plan.offload.ops.empty())
    limits.refuse("offload of " + planner::offloadText(plan.offload) +
                      "; torchtitan offloads parameters, gradients and states together",
                  "plan with --offload none");
  if (mesh.cp > 1 && plan.context == reshard::ContextForm::AllToAll)
    limits.refuse("all-to-all context parallelism", "plan with --context all-gather or ring");
  if (!facts.job().paddedVocabularies.empty())
    limits.warn("PaddedVocabulary",
                facts.paddingText() + "; torchtitan has the size in the model's configuration, and "
                                      "over tp its ranks hold unequal parts where it is smaller");
  std::string schedule, parts = "None";
  if (mesh.pp > 1) {
    schedule = scheduleName(facts, limits);
    if (const ChunkBlocks *cut = facts.cutBlock())
      limits.refuse("a stage begins inside a block, at " + cut->begin,
                    "plan with --pin 'BLOCK.*=begin' for each stage");
    parts = moduleParts(facts);
  }
  std::string recompute = checkpointing(facts, limits);
  if (facts.job().matmulPrecision == planner::MatmulPrecision::Fp8)
    limits.warn("Fp8", "the plan has matmuls in fp8: add Float8LinearConverter of "
                       "torchtitan.components.quantization to the model's converters");
  if (mesh.tp > 1)
    limits.warn("TensorForm", "torchtitan's model decides how each matrix is split; the plan's "
                              "tables may be split along another dim");
  if (Status status = limits.status(); !status)
    return status.error();

  int64_t local = plan.microBatch * (mesh.pp > 1 ? plan.accumulation : 1);
  const char *dtype = facts.job().precision == planner::Precision::BF16 ? "bfloat16" : "float32";
  std::string text = header(facts, limits.warnings(), "#");
  text += "# Start: python -m torchtitan.train --module THIS_MODULE --config planned\n"
          "from torchtitan.config import ParallelismConfig\n";
  if (recompute.rfind("Full", 0) == 0)
    text += "from torchtitan.distributed.activation_checkpoint import FullAC\n";
  if (recompute.rfind("Selective", 0) == 0)
    text += "from torchtitan.distributed.activation_checkpoint import SelectiveAC\n";
  text += "\n\ndef base():\n"
          "    \"\"\"The model, its data and its optimizer: replace it by yours.\"\"\"\n"
          "    from torchtitan.models.llama3.config_registry import llama3_debugmodel\n\n"
          "    return llama3_debugmodel()\n\n\n"
          "def planned():\n"
          "    config = base()\n";
  auto set = [&](const std::string &field, const std::string &value) {
    text += "    config." + field + " = " + value + "\n";
  };
  set("training.local_batch_size", std::to_string(local));
  set("training.global_batch_size", std::to_string(facts.job().globalBatch));
  if (facts.job().sequence > 0)
    set("training.seq_len", std::to_string(facts.job().sequence));
  set("training.max_norm", facts.hasSetting("clip_norm")
                               ? format("%g", facts.setting("clip_norm", 1))
                               : "float(\"inf\")");
  set("training.mixed_precision_param", pythonText(dtype));
  text += "    config.parallelism = ParallelismConfig(\n";
  auto field = [&](const std::string &name, const std::string &value) {
    text += "        " + name + "=" + value + ",\n";
  };
  field("data_parallel_replicate_degree", std::to_string(mesh.dp));
  field("data_parallel_shard_degree", std::to_string(mesh.fsdp * mesh.ep));
  field("fsdp_reshard_after_forward",
        pythonText(facts.zero == ZeroForm::Zero3 ? "always" : "never"));
  field("tensor_parallel_degree", std::to_string(mesh.tp));
  field("enable_sequence_parallel", facts.residual == ResidualForm::Sequence ? "True" : "False");
  field("pipeline_parallel_degree", std::to_string(mesh.pp));
  if (mesh.pp > 1) {
    field("pipeline_parallel_schedule", pythonText(schedule));
    field("pipeline_parallel_microbatch_size", std::to_string(plan.microBatch));
    field("module_fqns_per_model_part", parts);
  }
  field("context_parallel_degree", std::to_string(mesh.cp));
  if (mesh.cp > 1)
    field("context_parallel_load_balancer", plan.zigzag ? "\"headtail\"" : "None");
  field("expert_parallel_degree", std::to_string(mesh.ep));
  text += "    )\n";
  set("activation_checkpoint", recompute);
  text += "    return config\n";
  return Exported{text, limits.warnings()};
}

} // namespace tbc::exporter
