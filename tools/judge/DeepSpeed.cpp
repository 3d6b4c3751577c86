//===- DeepSpeed.cpp - Configurations of DeepSpeed --------------------------===//

#include "tools/judge/DeepSpeed.h"

#include "tools/judge/Entries.h"

namespace tbc::judge {

static const std::vector<Word> words = {
    {"train_batch_size", Field::GlobalBatch},
    {"train_micro_batch_size_per_gpu", Field::MicroBatch},
    {"gradient_accumulation_steps", Field::Accumulation},
    {"zero_optimization.stage", Field::Zero},
    {"zero_optimization.offload_optimizer.device", Field::OffloadOptimizer},
    {"zero_optimization.offload_param.device", Field::OffloadParameters},
    {"zero_optimization.zero_hpz_partition_size", Field::Instances},
    {"bf16.enabled", Field::Bf16},
    {"fp16.enabled", Field::F16},
    {"data_types.grad_accum_dtype", Field::GradientType},
    {"tensor_parallel.autotp_size", Field::Tp},
    {"sequence_parallel_size", Field::Cp}};

static const std::vector<std::string> ignored = {
    "optimizer.",
    "scheduler.",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "prescale_gradients",
    "gradient_predivide_factor",
    "communication_data_type",
    "dump_state",
    "fp16.loss_scale",
    "fp16.initial_scale_power",
    "fp16.loss_scale_window",
    "fp16.hysteresis",
    "fp16.min_loss_scale",
    "fp16.auto_cast",
    "fp16.consecutive_hysteresis",
    "bf16.auto_cast",
    "activation_checkpointing.",
    "flops_profiler.",
    "comms_logger.",
    "tensorboard.",
    "wandb.",
    "csv_monitor.",
    "aio.",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "zero_optimization.offload_optimizer.",
    "zero_optimization.offload_param.",
    "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.allgather_partitions",
    "zero_optimization.reduce_scatter",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.sub_group_size",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_gradients",
    "tensor_parallel.",
    "checkpoint.",
    "compile.",
    "sparse_gradients"};

static void readOffload(Setup &setup) {
  std::string optimizer = setup.text(Field::OffloadOptimizer);
  std::string parameters = setup.text(Field::OffloadParameters);
  auto isOn = [](const std::string &device) { return !device.empty() && device != "none"; };
  if (isOn(optimizer) && *setup.zero == 0)
    setup.refuse("Offload", "offload_optimizer needs ZeRO stage 1, 2 or 3, and the stage is 0");
  if (isOn(parameters) && *setup.zero != 3)
    setup.refuse("Offload", "offload_param needs ZeRO stage 3, and the stage is " +
                                std::to_string(*setup.zero));
  else if (isOn(parameters))
    setup.refuse("Offload", "tbc has no plan with parameters on the host (offload_param)");
  for (const std::string &device : {optimizer, parameters})
    if (!device.empty() && device != "none" && device != "cpu" && device != "nvme")
      setup.refuse("Offload", "the device of an offload is cpu, nvme or none, not " + device);
  if (optimizer == "nvme")
    setup.notes.push_back("NVMe: tbc plans with the host's memory");
  if (isOn(optimizer))
    setup.offload = "optimizer";
}

Result<Setup> readDeepSpeed(const std::string &text, const std::string &source) {
  auto entries = jsonEntries(text, source);
  if (!entries)
    return entries.error();
  Setup setup;
  setup.kind = setup.executor = "deepspeed";
  readWords(setup, *entries, words, ignored);
  noteLeftOut(setup, *entries,
              {"zero_optimization.zero_quantized_weights",
               "zero_optimization.zero_quantized_gradients", "compile."});
  setup.tp = setup.number(Field::Tp, 1);
  setup.cp = setup.number(Field::Cp, 1);
  if (setup.cp > 1)
    setup.context = "all-to-all";
  setup.globalBatch = setup.number(Field::GlobalBatch);
  setup.microBatch = setup.number(Field::MicroBatch);
  setup.accumulation = setup.number(Field::Accumulation);
  if (!setup.globalBatch && !setup.microBatch)
    setup.refuse("Batch", "train_batch_size or train_micro_batch_size_per_gpu is required");
  if (!setup.accumulation && !setup.globalBatch)
    setup.accumulation = 1;
  std::string stage = setup.text(Field::Zero);
  setup.zero = 0;
  if (stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3')
    setup.zero = stage[0] - '0';
  else if (!stage.empty())
    setup.refuse("Zero", "zero_optimization.stage is 0, 1, 2 or 3, not " + stage);
  if (setup.isOn(Field::Bf16) && setup.isOn(Field::F16))
    setup.refuse("Precision", "bf16 and fp16 are both enabled");
  setup.precision = setup.isOn(Field::Bf16) ? "bf16" : setup.isOn(Field::F16) ? "f16" : "f32";
  if (const std::string type = setup.text(Field::GradientType); !type.empty()) {
    if (type != "fp32" && type != "bf16" && type != "fp16")
      setup.refuse("Precision", "data_types.grad_accum_dtype is fp32, bf16 or fp16, not " + type);
    setup.gradientWidth = type == "fp32" ? 4 : 2;
  }
  if (setup.number(Field::Instances, 1) > 1)
    setup.notes.push_back("zero_hpz_partition_size: tbc has no second copy of parameters per node");
  readOffload(setup);
  return setup;
}

} // namespace tbc::judge
