//===- Accelerate.cpp - Configurations of accelerate ------------------------===//

#include "tools/judge/Accelerate.h"

#include "tools/judge/Entries.h"

#include <algorithm>

namespace tbc::judge {

static const std::vector<Word> words = {
    {"distributed_type", Field::Distributed},
    {"mixed_precision", Field::Precision},
    {"num_processes", Field::Ranks},
    {"num_machines", Field::Nodes},
    {"gradient_accumulation_steps", Field::Accumulation},
    {"fsdp_config.fsdp_reshard_after_forward", Field::Reshard},
    {"fsdp_config.fsdp_sharding_strategy", Field::Sharding},
    {"fsdp_config.fsdp_offload_params", Field::OffloadParameters},
    {"fsdp_config.fsdp_activation_checkpointing", Field::Recompute},
    {"parallelism_config.parallelism_config_dp_replicate_size", Field::Dp},
    {"parallelism_config.parallelism_config_dp_shard_size", Field::Fsdp},
    {"parallelism_config.parallelism_config_tp_size", Field::Tp},
    {"parallelism_config.parallelism_config_cp_size", Field::Cp},
    {"deepspeed_config.zero_stage", Field::Zero},
    {"deepspeed_config.gradient_accumulation_steps", Field::Accumulation},
    {"deepspeed_config.offload_optimizer_device", Field::OffloadOptimizer},
    {"deepspeed_config.offload_param_device", Field::OffloadParameters}};

static const std::vector<std::string> ignored = {
    "compute_environment",
    "machine_rank",
    "main_training_function",
    "rdzv_backend",
    "same_network",
    "use_cpu",
    "debug",
    "downcast_bf16",
    "enable_cpu_affinity",
    "gpu_ids",
    "main_process_ip",
    "main_process_port",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "tpu_env",
    "dynamo_config.",
    "fp8_config.",
    "mpirun_config.",
    "fsdp_config.fsdp_version",
    "fsdp_config.fsdp_auto_wrap_policy",
    "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
    "fsdp_config.fsdp_min_num_params",
    "fsdp_config.fsdp_backward_prefetch",
    "fsdp_config.fsdp_forward_prefetch",
    "fsdp_config.fsdp_state_dict_type",
    "fsdp_config.fsdp_use_orig_params",
    "fsdp_config.fsdp_cpu_ram_efficient_loading",
    "fsdp_config.fsdp_sync_module_states",
    "parallelism_config.parallelism_config_cp_comm_strategy",
    "deepspeed_config.gradient_clipping",
    "deepspeed_config.zero3_init_flag",
    "deepspeed_config.zero3_save_16bit_model",
    "deepspeed_config.deepspeed_multinode_launcher"};

static void readFsdp(Setup &setup) {
  std::string strategy = setup.text(Field::Sharding), reshard = setup.text(Field::Reshard);
  setup.zero = 3;
  setup.keepGathered = strategy == "SHARD_GRAD_OP" || strategy == "2" || reshard == "false" ||
                       reshard == "SHARD_GRAD_OP";
  static const std::vector<std::string> known = {
      "", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "1", "HYBRID_SHARD", "2", "3"};
  if (std::find(known.begin(), known.end(), strategy) == known.end())
    setup.refuse("Zero", "there is no fsdp_sharding_strategy " + strategy);
  if (strategy == "NO_SHARD" || strategy == "3")
    setup.zero = 0;
  if (setup.isOn(Field::OffloadParameters))
    setup.refuse("Offload", "tbc has no plan with parameters on the host (fsdp_offload_params)");
  setup.recompute = setup.isOn(Field::Recompute) ? "full" : "none";
}

Result<Setup> readAccelerate(const std::string &text, const std::string &source) {
  auto entries = yamlEntries(text, source);
  if (!entries)
    return entries.error();
  Setup setup;
  setup.kind = "accelerate";
  readWords(setup, *entries, words, ignored);
  setup.ranks = setup.number(Field::Ranks);
  setup.tp = setup.number(Field::Tp, 1);
  setup.cp = setup.number(Field::Cp, 1);
  setup.accumulation = setup.number(Field::Accumulation);
  std::string kind = setup.text(Field::Distributed);
  bool hasMesh = setup.has(Field::Fsdp) || setup.has(Field::Dp);
  if (kind == "FSDP") {
    readFsdp(setup);
    setup.dp = setup.number(Field::Dp, 1);
    setup.fsdp = hasMesh ? setup.number(Field::Fsdp, 1) : 0;
  } else if (kind == "DEEPSPEED") {
    setup.executor = "deepspeed";
    std::string stage = setup.text(Field::Zero);
    if (stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3')
      setup.zero = stage[0] - '0';
    else
      setup.refuse("Zero", "deepspeed_config.zero_stage is 0, 1, 2 or 3, not \"" + stage + "\"");
    bool offloads = setup.isOn(Field::OffloadOptimizer);
    if (offloads && setup.zero == 0)
      setup.refuse("Offload", "offload_optimizer_device needs ZeRO stage 1, 2 or 3");
    if (setup.isOn(Field::OffloadParameters) && setup.zero != 3)
      setup.refuse("Offload", "offload_param_device needs ZeRO stage 3");
    setup.offload = offloads ? "optimizer" : "";
  } else if (kind == "MULTI_GPU" || kind == "NO") {
    setup.zero = 0;
    if (setup.tp * setup.cp > 1)
      setup.refuse("Ranks", "parallelism_config with tp or cp needs distributed_type: FSDP");
  } else {
    setup.refuse("Value", "distributed_type " + (kind.empty() ? "is missing" : kind) +
                              "; tbc judges FSDP, DEEPSPEED, MULTI_GPU and NO");
  }
  if (setup.cp > 1)
    setup.context = "all-gather";
  std::string precision = setup.text(Field::Precision);
  setup.precision = precision == "bf16" ? "bf16" : precision == "fp16" ? "f16" : "f32";
  if (!precision.empty() && precision != "bf16" && precision != "fp16" && precision != "no")
    setup.refuse("Precision", "mixed_precision " + precision + " is none of no, fp16 and bf16");
  return setup;
}

} // namespace tbc::judge
