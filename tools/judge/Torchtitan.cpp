//===- Torchtitan.cpp - Configurations of torchtitan ------------------------===//

#include "tools/judge/Torchtitan.h"

#include "tools/judge/Entries.h"
#include "tools/judge/PythonConfig.h"

#include <algorithm>

namespace tbc::judge {

static const std::vector<Word> words = {
    {"training.local_batch_size", Field::LocalBatch},
    {"training.batch_size", Field::LocalBatch},
    {"training.global_batch_size", Field::GlobalBatch},
    {"training.seq_len", Field::Sequence},
    {"training.mixed_precision_param", Field::Precision},
    {"training.enable_cpu_offload", Field::OffloadParameters},
    {"model.converters", Field::Converters},
    {"training.data_parallel_replicate_degree", Field::Dp},
    {"training.data_parallel_shard_degree", Field::Fsdp},
    {"training.tensor_parallel_degree", Field::Tp},
    {"parallelism.data_parallel_replicate_degree", Field::Dp},
    {"parallelism.data_parallel_shard_degree", Field::Fsdp},
    {"parallelism.fsdp_reshard_after_forward", Field::Reshard},
    {"parallelism.tensor_parallel_degree", Field::Tp},
    {"parallelism.pipeline_parallel_degree", Field::Pp},
    {"parallelism.pipeline_parallel_schedule", Field::Schedule},
    {"parallelism.pipeline_parallel_microbatch_size", Field::MicroBatch},
    {"parallelism.pipeline_parallel_layers_per_stage", Field::LayersPerVirtualStage},
    {"parallelism.context_parallel_degree", Field::Cp},
    {"parallelism.context_parallel_rotate_method", Field::Context},
    {"parallelism.expert_parallel_degree", Field::Ep},
    {"experimental.context_parallel_degree", Field::Cp},
    {"experimental.pipeline_parallel_degree", Field::Pp},
    {"experimental.pipeline_parallel_schedule", Field::Schedule},
    {"activation_checkpoint.mode", Field::Recompute}};

static const std::vector<std::string> ignored = {
    "job.",
    "model.",
    "profiling.",
    "metrics.",
    "optimizer.",
    "lr_scheduler.",
    "checkpoint.",
    "compile.",
    "float8.",
    "comm.",
    "validation.",
    "debug.",
    "experimental.",
    "fault_tolerance.",
    "memory_estimation.",
    "quantize.",
    "training.max_norm",
    "training.steps",
    "training.dataset",
    "training.dataset_path",
    "training.compile",
    "training.gc_freq",
    "training.dtype",
    "training.mixed_precision_reduce",
    "training.seed",
    "training.deterministic",
    "training.warmup_steps",
    "training.enable_async_tensor_parallel",
    "parallelism.enable_async_tensor_parallel",
    "parallelism.enable_loss_parallel",
    "parallelism.disable_loss_parallel",
    "parallelism.enable_sequence_parallel",
    "parallelism.enable_compiled_autograd",
    "parallelism.context_parallel_load_balancer",
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
    "parallelism.pipeline_parallel_split_points",
    "parallelism.module_fqns_per_model_part",
    "parallelism.spmd_backend",
    "parallelism.enable_fsdp_symm_mem",
    "parallelism.pipeline_parallel_schedule_csv",
    "parallelism.context_parallel_ptrr_mask_key",
    "training.disable_cuda_graphs",
    "training.gc_debug",
    "model_spec",
    "model_spec.",
    "hf_assets_path",
    "dump_folder",
    "loss",
    "loss.",
    "tokenizer",
    "tokenizer.",
    "dataloader",
    "dataloader.",
    "validator",
    "validator.",
    "override",
    "override.",
    "profiler",
    "profiler.",
    "metrics",
    "optimizer",
    "lr_scheduler",
    "checkpoint",
    "compile",
    "debug",
    "comm",
    "activation_checkpoint.selective_ac_option",
    "activation_checkpoint.early_stop"};

/// A schedule of torch.distributed.pipelining in the planner's words.
static const std::pair<const char *, const char *> schedules[] = {
    {"1F1B", "1f1b"},
    {"GPipe", "gpipe"},
    {"Interleaved1F1B", "interleaved"},
    {"InterleavedZeroBubble", "zero-bubble"},
    {"ZBVZeroBubble", "zero-bubble"}};

static void readSchedule(Setup &setup) {
  std::string asked = setup.text(Field::Schedule);
  if (asked.empty())
    asked = "1F1B";
  std::string known;
  for (const auto &[theirs, ours] : schedules) {
    known += (known.empty() ? "" : ", ") + std::string(theirs);
    if (asked == theirs)
      setup.schedule = ours;
  }
  if (setup.schedule.empty())
    setup.refuse("Schedule", "there is no schedule " + asked + "; tbc knows " + known);
  if (asked == "ZBVZeroBubble")
    setup.virtualStages = 2;
}

/// Returns the settings of a Python file in the keys of TOML: the class of
/// `activation_checkpoint = FullAC.Config()` is its mode.
static Result<std::vector<Entry>> pythonEntries(const std::string &text, const std::string &source,
                                                Setup &setup) {
  auto settings = pythonSettings(text, source);
  if (!settings)
    return settings.error();
  for (const std::string &name : settings->elsewhere)
    setup.notes.push_back("settings that are not in this file come from " + name +
                          "; torchtitan's defaults are taken for them");
  for (Entry &entry : settings->entries) {
    if (entry.key != "activation_checkpoint")
      continue;
    entry.key += ".mode";
    entry.value = entry.value == "None"                             ? "none"
                  : entry.value.rfind("FullAC.Config", 0) == 0      ? "full"
                  : entry.value.rfind("SelectiveAC.Config", 0) == 0 ? "selective"
                                                                    : entry.value;
  }
  return std::move(settings->entries);
}

static bool isPython(const std::string &source) {
  return source.find(".py:") != std::string::npos ||
         (source.size() > 3 && source.compare(source.size() - 3, 3, ".py") == 0);
}

Result<Setup> readTorchtitan(const std::string &text, const std::string &source) {
  Setup setup;
  setup.kind = setup.executor = "torchtitan";
  auto entries = isPython(source) ? pythonEntries(text, source, setup) : tomlEntries(text, source);
  if (!entries)
    return entries.error();
  readWords(setup, *entries, words, ignored);
  noteLeftOut(setup, *entries,
              {"float8.", "quantize.", "training.dtype",
               "parallelism.pipeline_parallel_first_stage_less_layers",
               "parallelism.pipeline_parallel_last_stage_less_layers"});
  setup.tp = setup.number(Field::Tp, 1);
  setup.pp = setup.number(Field::Pp, 1);
  setup.cp = setup.number(Field::Cp, 1);
  setup.ep = setup.number(Field::Ep, 1);
  setup.dp = setup.number(Field::Dp, 1);
  setup.fsdp = setup.number(Field::Fsdp, 0); // -1: what is left
  setup.sequence = setup.number(Field::Sequence, 2048);
  setup.globalBatch = setup.number(Field::GlobalBatch);
  int64_t local = setup.number(Field::LocalBatch, 8);
  setup.microBatch = setup.pp > 1 ? setup.number(Field::MicroBatch, 1) : local;
  if (setup.pp > 1) {
    readSchedule(setup);
    if (local % *setup.microBatch != 0)
      setup.refuse("Batch", "a local batch of " + std::to_string(local) +
                                " does not divide into micro-batches of " +
                                std::to_string(*setup.microBatch));
    if (!setup.globalBatch)
      setup.accumulation = local / *setup.microBatch;
  } else if (!setup.globalBatch) {
    setup.accumulation = 1;
  }
  setup.zero = 3;
  std::string reshard = setup.text(Field::Reshard);
  setup.keepGathered = reshard == "never" || (setup.pp > 1 && reshard != "always");
  if (!reshard.empty() && reshard != "default" && reshard != "always" && reshard != "never")
    setup.refuse("Value", "fsdp_reshard_after_forward is default, always or never, not " + reshard);
  setup.precision = setup.text(Field::Precision) == "float32" ? "f32" : "bf16";
  // "float8", or "quantize.linear.float8" of later releases.
  if (setup.text(Field::Converters).find("float8") != std::string::npos)
    setup.matmulPrecision = "fp8";
  std::string recompute = setup.text(Field::Recompute);
  if (recompute.empty())
    recompute = "selective";
  if (recompute != "none" && recompute != "selective" && recompute != "full")
    setup.refuse("Recompute", "activation_checkpoint.mode " + recompute +
                                  " is none of none, selective and full");
  else
    setup.recompute = recompute;
  if (setup.isOn(Field::OffloadParameters))
    setup.refuse("Offload", "enable_cpu_offload moves parameters to the host, for which tbc has no "
                            "plan");
  if (setup.cp > 1)
    setup.context = setup.text(Field::Context) == "alltoall" ? "ring" : "all-gather";
  return setup;
}

} // namespace tbc::judge
