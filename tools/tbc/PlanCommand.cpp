//===- PlanCommand.cpp - tbc plan ------------------------------------------------===//

#include "planner/plan/PlanFile.h"
#include "planner/report/Summary.h"
#include "planner/search/Search.h"
#include "planner/support/Format.h"
#include "runtime/abi/Problem.h"
#include "runtime/abi/Sha256.h"
#include "tools/driver/Context.h"
#include "tools/driver/EmitIr.h"
#include "tools/export/Slurm.h"
#include "tools/export/Targets.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc-run/WordFlags.h"
#include "tools/tbc/AnnotatedPins.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/FindBatch.h"
#include "tools/tbc/PlanOptions.h"
#include "tools/tbc/Progress.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

namespace tbc::cli {

namespace {

struct Options : PlanOptions {
  std::string output, jobs;
  std::string emit; // "ir", or empty
  bool json = false, isFull = false, findsBatch = false, triesBatch = false, isVerbose = false;
  std::optional<double> timeLimit; // seconds
};

} // namespace

/// Returns the model's path relative to the folder of `planPath`, as stored in the plan.
static std::string modelPathInPlan(const std::string &model, const std::string &planPath) {
  std::error_code error;
  std::filesystem::path base = planPath.empty() || planPath == "-"
                                   ? std::filesystem::current_path(error)
                                   : std::filesystem::absolute(planPath, error).parent_path();
  std::filesystem::path relative =
      std::filesystem::relative(std::filesystem::absolute(model, error), base, error);
  return error || relative.empty() ? model : relative.string();
}

/// Extends `error` of an f32 job that does not fit, if the job would fit in bf16. bf16 is another
/// step, so the planner cannot try it by itself.
static Error withOtherPrecision(Error error, driver::StepOptions stepOptions, planner::Job job,
                                const planner::Cluster &cluster, const planner::Pins &pins) {
  if (error.code != ErrorCode::NoFeasiblePlan || job.precision != planner::Precision::F32)
    return error;
  stepOptions.precision = job.precision = planner::Precision::BF16;
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

/// Prints the search's counts and time: docs/planning.md.
static void printCounts(const planner::SearchCounts &counts) {
  std::ostringstream text;
  text << std::fixed;
  auto row = [&](const char *what, double seconds, const std::string &did) {
    text << "  " << std::left << std::setw(11) << what << std::right << std::setprecision(3)
         << std::setw(9) << seconds << " CPU s  " << did << "\n";
  };
  double seconds = counts.boundSeconds + counts.scoreSeconds;
  text << "search: " << counts.evaluations() << " evaluations in " << std::setprecision(3)
       << seconds << " CPU s, " << std::setprecision(0)
       << double(counts.evaluations()) / std::max(seconds, 1e-6) << " a CPU second\n";
  row("bounds", counts.boundSeconds, std::to_string(counts.bounded) + " candidates bounded");
  row("scores", counts.scoreSeconds,
      std::to_string(counts.priced) + " candidates priced; compared for them " +
          std::to_string(counts.strategies) + " strategies and " + std::to_string(counts.cuts) +
          " stages");
  row("derivation", counts.deriveSeconds,
      std::to_string(counts.derived) + " candidates derived op by op");
  row("proof", counts.proofSeconds, "of the bound that is printed");
  std::cerr << text.str();
}

/// Whether the IR of `step` is too long to read.
static bool isLarge(const driver::TrainingStep &step) { return step.step.ops.size() > 500; }

/// Returns the next commands to run after a plan for `executor`; `planPath`: its file, or empty.
static std::string nextCommands(const std::string &planPath, const std::string &executor) {
  const std::string plan = planPath.empty() ? "plan.json" : planPath;
  std::string program = std::filesystem::path(plan).replace_extension().string();
  if (program == plan)
    program += ".program";
  const std::string file = planPath.empty() ? "the same with -o plan.json, then " : "";
  if (executor != planner::ownExecutor) {
    const bool isTarget = exporter::findTarget(executor) != nullptr;
    return "next: " + file + "tbc export " + exporter::shellWord(plan) + " --to " +
           (isTarget ? executor : "TARGET; tbc export --help lists them") + "\n";
  }
  return "next: " + file + "tbc verify " + exporter::shellWord(plan) + ", tbc compile " +
         exporter::shellWord(plan) + " -o " + exporter::shellWord(program) + "\n";
}

namespace {

/// What a search is about. The context outlives the step.
struct Request {
  driver::StepOptions stepOptions;
  planner::Cluster cluster;
  planner::Pins pins;
  std::unique_ptr<mlir::MLIRContext> context;
  std::unique_ptr<driver::TrainingStep> step;
  planner::Job job;
  std::vector<std::string> assumptions; // of annotations and of the batch
};

} // namespace

/// Warns of the model, and of a memory limit that changes nothing.
static void warn(const Options &options, const Request &request) {
  for (const std::string &warning : request.step->model.warnings)
    std::cerr << "tbc: warning: " << warning << "\n";
  const planner::Cluster &cluster = request.cluster;
  if (request.pins.memoryLimitBytes.value_or(0) > cluster.usableBytes())
    std::cerr << "tbc: warning: --memory-limit " << options.memoryLimit << " is more than the "
              << planner::formatBytes(double(cluster.usableBytes())) << " that a device of "
              << cluster.name << " has for a plan, and changes nothing\n";
}

/// Reads flags, cluster and model.
static Result<Request> readRequest(const Options &options) {
  auto pins = toPins(options);
  if (!pins)
    return pins.error();
  auto devices = planner::loadCluster(options.cluster.value_or(planner::defaultClusterName));
  if (!devices)
    return ofKind(Problem::BadCluster, devices.error());
  auto cluster = planner::runBy(*devices, options.executor);
  if (!cluster)
    return ofKind(Problem::BadFlagValue, cluster.error());
  auto stepOptions = toStepOptions(options.model);
  if (!stepOptions)
    return stepOptions.error();
  stepOptions->import.readAnnotations = !options.ignoresAnnotations;
  std::optional<Progress> progress;
  progress.emplace("importing the model");
  auto context = driver::makeContext();
  auto step = driver::buildTrainingStep(*context, *stepOptions);
  if (!step)
    return step.error();
  progress.reset();
  Request request{*stepOptions, *cluster, *pins, std::move(context), std::move(*step), {}, {}};
  if (Status status = checkExperts(options, request.step->step.graph); !status)
    return status.error();
  warn(options, request);
  request.job = toJob(options, request.stepOptions, *request.step,
                      modelPathInPlan(options.model.model, options.output));
  auto found = addAnnotatedPins(*request.step, request.job, request.pins);
  if (!found)
    return found.error();
  request.assumptions = std::move(*found);
  return request;
}

/// Replaces the job's batch by the largest that fits without accumulation.
static Status takeLargestBatch(const Options &options, Request &request) {
  BatchQuestion question{request.step->step.graph, request.cluster, request.pins,
                         options.model.model};
  question.isTried = options.triesBatch;
  std::optional<Progress> progress;
  progress.emplace("looking for the largest batch");
  auto batch =
      findBatch(question, request.job, [&](const std::string &text) { progress->setPhase(text); });
  progress.reset();
  if (!batch)
    return ofKind(Problem::BadPins, ofKind(Problem::DoesNotFit, batch.error()));
  request.job.globalBatch = batch->samples;
  request.job.batchIsDefault = false;
  request.pins = batch->pins;
  request.assumptions.insert(request.assumptions.end(), batch->assumptions.begin(),
                             batch->assumptions.end());
  return Status::ok();
}

/// Returns the assumptions of the flags, before those of the search.
static std::vector<std::string> assumptionsOf(const Options &options, const Request &request) {
  std::vector<std::string> assumptions = request.assumptions;
  if (options.executor != planner::ownExecutor)
    assumptions.push_back("the plan runs on " + options.executor +
                          ", not on tbc's own Programs (--executor)");
  if (!options.cluster)
    assumptions.push_back("cluster " + request.cluster.name +
                          ", the default: --cluster names another, tbc cluster lists them");
  return assumptions;
}

/// Returns the assumptions about the training step, behind those of the search.
static std::vector<std::string> assumptionsOf(const driver::TrainingStep &step,
                                              const planner::Plan &plan) {
  std::vector<std::string> assumptions;
  if (plan.mesh.ep > 1 && reshard::routesTokens(step.step.graph))
    assumptions.push_back(
        plan.job.expertImbalance > 1
            ? "the fullest rank of experts takes " +
                  planner::format("%g", plan.job.expertImbalance) +
                  " times the mean of tokens (--expert-imbalance)"
            : "ranks of experts take equally many tokens: --expert-imbalance 1.2 plans for 20 % "
              "more on the fullest");
  for (const PaddedVocabulary &padded : step.paddedVocabularies)
    assumptions.push_back("vocabulary of " + std::to_string(padded.size) + " padded to " +
                          std::to_string(padded.paddedSize) +
                          ", which devices can divide: --pad-vocabulary 1 leaves it");
  for (const ExpertCapacity &of : step.expertCapacities)
    assumptions.push_back("each of " + std::to_string(of.experts) + " experts takes " +
                          std::to_string(of.capacity) + " of the " + std::to_string(of.tokens) +
                          " tokens of a sample, the first that ask for it, " +
                          "and drops the others (--capacity-factor); each token asks for " +
                          std::to_string(of.top));
  return assumptions;
}

/// Writes the plan to its file, and prints it in the form that was asked for.
static Status writeAnswer(const Options &options, const driver::TrainingStep &step,
                          const planner::Plan &plan) {
  const std::string text = planner::writePlan(plan);
  if (!options.output.empty())
    if (Status status = writeFile(options.output, text); !status)
      return status;
  if (options.emit == "ir") {
    auto ir = driver::annotatedText(step, plan, !options.isFull && isLarge(step));
    if (!ir)
      return ofKind(Problem::BadPlan, ir.error());
    std::cout << *ir;
  } else if (options.json) {
    std::cout << text;
  } else if (options.output != "-") {
    {
      FittedOutput fitted;
      std::cout << planner::summarize(plan);
    }
    std::cout << nextCommands(options.output,
                              planner::executorOf(plan.cluster).name); // to be copied
  }
  return Status::ok();
}

static Result<int> runPlan(const Options &options) {
  if (!options.jobs.empty())
    return runJobs(options.jobs);
  if (options.model.model.empty() || options.gpus == 0)
    return problem(Problem::MissingArgument, std::string(options.gpus == 0 ? "--gpus" : "model") +
                                                 " is required; see 'tbc plan --help'");
  if (Status status = checkWritable(options.output, {options.model.model}); !status)
    return status.error();
  Result<Request> request = readRequest(options);
  if (!request)
    return request.error();
  if (options.findsBatch)
    if (Status status = takeLargestBatch(options, *request); !status)
      return status.error();
  if (options.timeLimit)
    request->pins.deadline = planner::Deadline::after(*options.timeLimit);
  std::optional<Progress> progress;
  progress.emplace("searching");
  auto answer = planner::search(request->step->step.graph, request->job, request->cluster,
                                request->pins, progress->searching());
  progress.reset();
  if (!answer)
    return ofKind(Problem::BadPins,
                  ofKind(Problem::DoesNotFit,
                         withOtherPrecision(answer.error(), request->stepOptions, request->job,
                                            request->cluster, request->pins)));
  if (options.isVerbose)
    printCounts(answer->counts);
  std::vector<std::string> &assumptions = answer->plan.assumptions;
  const std::vector<std::string> before = assumptionsOf(options, *request),
                                 behind = assumptionsOf(*request->step, answer->plan);
  assumptions.insert(assumptions.begin(), before.begin(), before.end());
  assumptions.insert(assumptions.end(), behind.begin(), behind.end());
  if (Status status = writeAnswer(options, *request->step, answer->plan); !status)
    return status.error();
  return 0;
}

void addPlanCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("plan", "Choose how to train a model on a cluster");
  auto options = std::make_shared<Options>();
  addPlanOptions(*command, *options);
  command->add_option("-o,--output", options->output, "Write plan.json here (- for stdout)");
  command->add_flag("--json", options->json, "Print the plan as JSON");
  CLI::Option *emit =
      command
          ->add_option("--emit", options->emit,
                       "Print this instead of a summary: ir, the training step with the plan as "
                       "attributes, which tbc-opt reads")
          ->transform(oneOf({"ir"}))
          ->excludes("--json");
  command
      ->add_flag("--full", options->isFull,
                 "With --emit ir: print all of a large step, not one of each repeated graph block")
      ->needs(emit);
  command->add_flag("-v,--verbose", options->isVerbose,
                    "Say on stderr how much the search compared, and in what time");
  command
      ->add_option("--time-limit", options->timeLimit,
                   "Seconds of search after which the best that was found is taken; the plan then "
                   "depends on the machine")
      ->check(positive());
  CLI::Option *find =
      command->add_flag("--find-batch-size", options->findsBatch,
                        "Plan for the largest batch that fits without accumulation");
  find->excludes("--batch")->excludes("--micro-batch");
  command
      ->add_flag("--trial", options->triesBatch,
                 "With --find-batch-size: try it on this machine, and take less until it fits")
      ->needs(find);
  command
      ->add_option("--job", options->jobs,
                   "Cost every line of this file instead, {\"model\": .., \"gpus\": .., FLAG: ..}, "
                   "and print a line of JSON for each")
      ->excludes("model")
      ->excludes("--gpus")
      ->excludes("--output")
      ->excludes(emit)
      ->excludes(find);
  command->callback([options, setAction] { setAction([options] { return runPlan(*options); }); });
}

} // namespace tbc::cli
