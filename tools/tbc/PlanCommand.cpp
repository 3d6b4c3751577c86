//===- PlanCommand.cpp - tbc plan ------------------------------------------------===//

#include "planner/core/Search.h"
#include "planner/core/Summary.h"
#include "runtime/abi/Sha256.h"
#include "tools/driver/Context.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/ModelOptions.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct PlanOptions {
  ModelOptions model;
  int64_t gpus = 0;
  std::optional<std::string> cluster;
  int64_t batch = 0;
  std::string mesh;
  std::string memoryLimit;
  int64_t microBatch = 0;
  int zero = -1;
  planner::Pins pins;
  std::string output;
  bool json = false;
};

} // namespace

/// The default global batch: 2^19 tokens for a model with a sequence, else 32 samples per device.
static int64_t defaultBatch(int64_t sequence, int64_t gpus) {
  if (sequence > 0)
    return std::max<int64_t>(1, (int64_t(1) << 19) / sequence);
  return 32 * gpus;
}

static Result<planner::Pins> toPins(const PlanOptions &options) {
  planner::Pins pins = options.pins;
  if (!options.mesh.empty()) {
    auto mesh = planner::parseMesh(options.mesh);
    if (!mesh)
      return mesh.error();
    pins.mesh = *mesh;
  }
  if (!options.memoryLimit.empty()) {
    auto bytes = planner::parseBytes(options.memoryLimit);
    if (!bytes)
      return bytes.error();
    pins.memoryLimitBytes = *bytes;
  }
  if (options.microBatch > 0)
    pins.microBatch = options.microBatch;
  if (options.zero >= 0)
    pins.zero = options.zero;
  return pins;
}

/// The model's path as it stands in a plan written to `planPath`: relative to the plan.
static std::string modelPathInPlan(const std::string &model, const std::string &planPath) {
  std::error_code error;
  std::filesystem::path base = planPath.empty() || planPath == "-"
                                   ? std::filesystem::current_path(error)
                                   : std::filesystem::absolute(planPath, error).parent_path();
  std::filesystem::path relative =
      std::filesystem::relative(std::filesystem::absolute(model, error), base, error);
  return error || relative.empty() ? model : relative.string();
}

/// `error` of a job in f32 that does not fit, with the words that it would in bf16 if so: that is
/// another step, which the planner cannot try by itself.
static Error withOtherPrecision(Error error, driver::StepOptions stepOptions, planner::Job job,
                                const planner::Cluster &cluster, const planner::Pins &pins) {
  if (error.code != ErrorCode::NoFeasiblePlan || job.precision != "f32")
    return error;
  stepOptions.precision = job.precision = "bf16";
  auto context = driver::makeContext();
  auto step = driver::buildTrainingStep(*context, stepOptions);
  if (!step)
    return error;
  auto answer = planner::search((*step)->step.graph, job, cluster, pins);
  if (answer)
    error.message += "\n  or use --precision bf16: then it fits in " +
                     planner::formatBytes(double(answer->plan.prediction.peakBytes)) +
                     " and takes " + planner::formatSeconds(answer->plan.prediction.stepSeconds);
  return error;
}

static Result<int> runPlan(const PlanOptions &options) {
  auto pins = toPins(options);
  if (!pins)
    return pins.error();
  auto cluster = planner::loadCluster(options.cluster.value_or(planner::defaultClusterName));
  if (!cluster)
    return cluster.error();
  auto stepOptions = toStepOptions(options.model);
  if (!stepOptions)
    return stepOptions.error();
  auto context = driver::makeContext();
  auto step = driver::buildTrainingStep(*context, *stepOptions);
  if (!step)
    return step.error();
  for (const std::string &warning : (*step)->model.warnings)
    std::cerr << "tbc: warning: " << warning << "\n";

  planner::Job job;
  job.modelPath = modelPathInPlan(options.model.model, options.output);
  job.modelHash = (*step)->model.hash;
  job.stepHash = (*step)->hash;
  job.bindings = toBindings(*stepOptions);
  job.loss = options.model.loss;
  job.optimizer = options.model.optimizer;
  job.settings = (*step)->options.settings;
  job.precision = (*step)->options.precision;
  job.gpus = options.gpus;
  job.sequence = (*step)->model.seq;
  job.batchIsDefault = options.batch == 0;
  job.globalBatch = options.batch > 0 ? options.batch : defaultBatch(job.sequence, job.gpus);

  auto answer = planner::search((*step)->step.graph, job, *cluster, *pins);
  if (!answer)
    return withOtherPrecision(answer.error(), *stepOptions, job, *cluster, *pins);
  if (!options.cluster)
    answer->plan.assumptions.insert(answer->plan.assumptions.begin(),
                                    "cluster " + cluster->name +
                                        ", the default: --cluster names another, tbc cluster "
                                        "lists them");
  for (const PaddedVocabulary &padded : (*step)->paddedVocabularies)
    answer->plan.assumptions.push_back("vocabulary of " + std::to_string(padded.size) +
                                       " padded to " + std::to_string(padded.paddedSize) +
                                       ", which devices can divide: --pad-vocabulary 1 leaves it");
  for (const ExpertCapacity &of : (*step)->expertCapacities)
    answer->plan.assumptions.push_back(
        "each of " + std::to_string(of.experts) + " experts takes " + std::to_string(of.capacity) +
        " of the " + std::to_string(of.tokens) +
        " tokens of a sample, the first that ask for it, " +
        "and drops the others (--capacity-factor); each token asks for " + std::to_string(of.top));
  std::string text = planner::writePlan(answer->plan);
  if (!options.output.empty())
    if (Status status = writeFile(options.output, text); !status)
      return status.error();
  if (options.json)
    std::cout << text;
  else if (options.output != "-")
    std::cout << planner::summarize(answer->plan);
  return 0;
}

void addPlanCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("plan", "Choose how to train a model on a cluster");
  auto options = std::make_shared<PlanOptions>();
  addModelOptions(*command, options->model);
  command->add_option("--gpus", options->gpus, "Number of devices")
      ->required()
      ->check(CLI::PositiveNumber);
  command->add_option(
      "--cluster", options->cluster,
      std::string("Cluster preset (tbc cluster lists them) or TOML file (default: ") +
          planner::defaultClusterName + ")");
  command
      ->add_option("--batch", options->batch,
                   "Global batch in samples (default: 2^19 tokens, or 32 per device)")
      ->check(CLI::PositiveNumber);
  command->add_option("--mesh", options->mesh, "Pin the mesh, e.g. dp=2,fsdp=4,tp=2");
  command->add_option("--strategy", options->pins.strategy, "Pin the strategy")
      ->check(CLI::IsMember(planner::strategyNames()));
  command->add_option("--zero", options->zero, "Pin the ZeRO stage")->check(CLI::Range(0, 3));
  command->add_option("--micro-batch", options->microBatch, "Pin the micro-batch in samples")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--virtual-stages", options->pins.virtualStages,
                   "Pin the number of model chunks per pipeline stage")
      ->check(CLI::PositiveNumber);
  command->add_option("--context", options->pins.context, "Pin how attention is split over axis cp")
      ->check(CLI::IsMember({"ring", "all-gather", "all-to-all"}));
  command
      ->add_option("--sequence-order", options->pins.sequenceOrder,
                   "Pin how tokens are dealt out over axis cp")
      ->check(CLI::IsMember({"contiguous", "zigzag"}));
  command
      ->add_option("--placement", options->pins.placement,
                   "Pin where chunks lie: loop (round and round), v (there and back)")
      ->check(CLI::IsMember({"loop", "v"}));
  command->add_option("--schedule", options->pins.schedule, "Pin the pipeline schedule")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved", "zero-bubble"}));
  command->add_option("--recompute", options->pins.recompute,
                      "Pin what is recomputed: none, selective, full; selective:8 in 8 blocks");
  command->add_option("--memory-limit", options->memoryLimit,
                      "Memory per device to stay within, e.g. 40GiB");
  command->add_option("--top", options->pins.top, "Answers to keep, the best included")
      ->check(CLI::Range(1, 50));
  command->add_option("-o,--output", options->output, "Write plan.json here (- for stdout)");
  command->add_flag("--json", options->json, "Print the plan as JSON");
  command->callback([options, setAction] { setAction([options] { return runPlan(*options); }); });
}

} // namespace tbc::cli
