//===- PlanOptions.cpp - Flags of tbc plan -------------------------------------===//

#include "tools/tbc/PlanOptions.h"

#include "planner/pins/Conditions.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/NameModel.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/WordFlags.h"

#include <CLI/CLI.hpp>

#include <cctype>

namespace tbc::cli {

/// Names of strategies in PyTorch (FULL_SHARD), Lightning (deepspeed_stage_3) and DeepSpeed
/// (zero-3).
static Spellings strategySpellings() {
  return {{"full-shard", "fsdp"},
          {"fsdp2", "fsdp"},
          {"no-shard", "ddp"},
          {"dp", "ddp"},
          {"data-parallel", "ddp"},
          {"distributed-data-parallel", "ddp"},
          {"hsdp", "hybrid-shard"},
          {"zero-1", "zero1"},
          {"zero-2", "zero2"},
          {"zero-3", "zero3"},
          {"deepspeed-stage-1", "zero1"},
          {"deepspeed-stage-2", "zero2"},
          {"deepspeed-stage-3", "zero3"},
          {"tensor-parallel", "tp"},
          {"pipeline-parallel", "pp"}};
}

void addPlanOptions(CLI::App &command, PlanOptions &options) {
  addModelOptions(command, options.model);
  command.option_defaults()->group("The job");
  command.add_option("--gpus", options.gpus, "Number of devices")->check(atLeast(1));
  command.add_option(
      "--cluster", options.cluster,
      std::string("Cluster preset (tbc cluster lists them) or TOML file (default: ") +
          planner::defaultClusterName + ")");
  command.add_option(
      "--executor", options.executor,
      "The program that will run the plan, e.g. megatron (default: tbc, the only one "
      "that tbc compile takes)");
  command
      .add_option("--batch", options.batch,
                  "Global batch in samples (default: 2^19 tokens, or 32 per device)")
      ->check(atLeast(1));
  command.add_option("--memory-limit", options.memoryLimit,
                     "Memory per device to stay within, e.g. 40GiB");
  command.add_flag("--memory-risk", options.takesRisk,
                   "Plan by the middle of what memory may take instead of its upper end: a faster "
                   "plan, which may run out of memory");
  command
      .add_option("--matmul-precision", options.matmulPrecision,
                  "What matmuls read: own, the types of their operands; fp8, 8 bits, rounded right "
                  "before")
      ->transform(oneOf(planner::matmulPrecisionNames()))
      ->capture_default_str();
  command
      .add_option("--expert-imbalance", options.expertImbalance,
                  "Tokens of the fullest rank of experts over the mean of all ranks, for experts "
                  "without a capacity")
      ->check(factor())
      ->capture_default_str();
  command.option_defaults()->group("Decisions (what is not given is searched)");
  command.add_option("--mesh", options.mesh, "Pin the mesh, e.g. dp=2,fsdp=4,tp=2");
  command.add_option("--strategy", options.pins.strategy, "Pin the strategy")
      ->transform(oneOf(planner::strategyNames(), strategySpellings()));
  command.add_option("--zero", options.zero, "Pin the ZeRO stage")->check(between(0, 3));
  command.add_option("--micro-batch", options.microBatch, "Pin the micro-batch in samples")
      ->check(atLeast(1));
  command
      .add_option("--virtual-stages", options.pins.virtualStages,
                  "Pin the number of model chunks per pipeline stage")
      ->check(atLeast(1));
  command.add_option("--context", options.pins.context, "Pin how attention is split over axis cp")
      ->transform(oneOf({"ring", "all-gather", "all-to-all"}));
  command
      .add_option("--sequence-order", options.pins.sequenceOrder,
                  "Pin how tokens are distributed over axis cp")
      ->transform(oneOf({"contiguous", "zigzag"}));
  command
      .add_option("--placement", options.pins.placement,
                  "Pin the order of the chunks over stages: loop (looped) or v (V-shaped)")
      ->transform(oneOf({"loop", "v"}));
  command.add_option("--schedule", options.pins.schedule, "Pin the pipeline schedule")
      ->transform(oneOf(schedule::scheduleNames()));
  command.add_option("--recompute", options.pins.recompute,
                     "Pin what is recomputed: none, selective, full; selective:8 in 8 blocks");
  command.add_option("--offload", options.pins.offload,
                     "Keep in host memory: none, optimizer (states), residuals, all; residuals:8 "
                     "of 8 blocks; auto: what must be");
  command.add_option("--bucket-size", options.pins.bucketSize,
                     "Bytes of gradients reduced together: auto, none, or a size such as 25MiB");
  command.add_option("--gather-size", options.pins.gatherSize,
                     "Bytes of stored parameters gathered together: auto, none, or a size");
  command.add_option(
      "--prefetch", options.pins.prefetch,
      "How many gathers ahead of its use a stored parameter is gathered: auto, none, or "
      "a number");
  command
      .add_option("--pin", options.pin,
                  "Pin a decision (tp=8, zero=3, schedule=1f1b ..) or how the ops that a name "
                  "matches are split and kept, or where a stage begins: "
                  "GLOB=tp|column|row|whole|recompute|keep|begin (repeatable)")
      ->allow_extra_args(false);
  command
      .add_option("--forbid", options.forbid,
                  "Rule out a decision (tp=8, zero=3, schedule=1f1b ..), an axis or recompute "
                  "altogether (tp), or GLOB=SPEC as of --pin (repeatable)")
      ->allow_extra_args(false);
  command.add_flag("--ignore-annotations", options.ignoresAnnotations,
                   "Plan as if the model had no device annotations, which are pins otherwise");
  command.option_defaults()->group("Answers");
  command
      .add_option("--tie-percent", options.tiePercent,
                  "Plans whose times differ by no more are equals, and the simplest of them is the "
                  "answer; 0: the fastest")
      ->check(percentage())
      ->capture_default_str();
  command.add_option("--top", options.pins.top, "Answers to keep, the best included")
      ->check(between(1, 50));
}

/// Returns the default global batch: 2^19 tokens for a model with a sequence, else 32 samples per
/// device. Example: 512 samples of 1024 tokens.
static int64_t defaultBatch(int64_t sequence, int64_t gpus) {
  if (sequence > 0)
    return std::max<int64_t>(1, (int64_t(1) << 19) / sequence);
  return 32 * gpus;
}

Result<planner::Pins> toPins(const PlanOptions &options) {
  planner::Pins pins = options.pins;
  if (!options.mesh.empty()) {
    auto mesh = planner::parseMesh(options.mesh, options.gpus);
    if (!mesh)
      return ofKind(Problem::BadMesh, mesh.error());
    pins.mesh = *mesh;
  }
  if (!options.memoryLimit.empty()) {
    auto bytes = planner::parseBytes(options.memoryLimit);
    if (!bytes)
      return problem(Problem::BadSize, "--memory-limit: " + bytes.error().message);
    if (std::isdigit(static_cast<unsigned char>(options.memoryLimit.back())))
      return problem(Problem::BadSize, "--memory-limit " + options.memoryLimit +
                                           ": of what? write " + options.memoryLimit + "GiB, " +
                                           options.memoryLimit + "MiB or " + options.memoryLimit +
                                           "B");
    pins.memoryLimitBytes = *bytes;
  }
  constexpr double percent = 0.01;
  pins.tie = percent * options.tiePercent;
  if (options.takesRisk)
    pins.memoryGoal = planner::MemoryVerdict::Tight;
  for (bool isForbidden : {false, true})
    for (const std::string &text : isForbidden ? options.forbid : options.pin)
      if (Status status = planner::addPin(text, isForbidden, pins); !status)
        return ofKind(Problem::BadPins, status.error());
  if (options.microBatch > 0)
    pins.microBatch = options.microBatch;
  if (options.zero >= 0)
    pins.zero = options.zero;
  return pins;
}

planner::Job toJob(const PlanOptions &options, const driver::StepOptions &asked,
                   const driver::TrainingStep &step, const std::string &modelPath) {
  planner::Job job;
  job.modelPath = modelPath;
  job.modelHash = step.model.hash;
  job.stepHash = step.hash;
  for (const PaddedVocabulary &padded : step.paddedVocabularies)
    job.paddedVocabularies[padded.size] = padded.paddedSize;
  job.bindings = toBindings(asked);
  job.loss = options.model.loss;
  job.optimizer = step.options.optimizer;
  job.settings = step.options.settings;
  job.precision = *step.options.precision; // resolved
  job.sequence = step.model.seq;
  job.names = driver::nameModel(step);
  setDevices(job, options);
  return job;
}

void setDevices(planner::Job &job, const PlanOptions &options) {
  job.gpus = options.gpus;
  job.batchIsDefault = options.batch == 0;
  job.globalBatch = options.batch > 0 ? options.batch : defaultBatch(job.sequence, job.gpus);
  job.expertImbalance = options.expertImbalance;
  job.matmulPrecision =
      planner::parseMatmulPrecision(options.matmulPrecision).value_or(job.matmulPrecision);
}

Status checkExperts(const PlanOptions &options, const reshard::Graph &graph) {
  if (options.expertImbalance == 1 || reshard::routesTokens(graph))
    return Status::ok();
  return problem(Problem::BadPins,
                 "--expert-imbalance: the model has no experts that take any number of tokens; "
                 "experts with a capacity take that many each");
}

} // namespace tbc::cli
