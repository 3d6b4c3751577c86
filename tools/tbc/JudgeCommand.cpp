//===- JudgeCommand.cpp - tbc judge ----------------------------------------------===//

#include "planner/plan/Describe.h"
#include "planner/plan/ModelNames.h"
#include "planner/search/Search.h"
#include "planner/support/Format.h"
#include "planner/support/JsonText.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/Context.h"
#include "tools/judge/Legal.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc-run/WordFlags.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/PlanOptions.h"
#include "tools/tbc/Progress.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

namespace tbc::cli {

using nlohmann::json;

namespace {

struct Options : PlanOptions {
  std::string configuration, from;
  std::string otherExecutor; // than the configuration's
  bool isJson = false, isAlone = false;
};

/// What is said about a configuration.
struct Judgement {
  judge::Setup setup;
  std::string executor; // of both plans
  std::optional<planner::Plan> plan, best;
};

} // namespace

static std::vector<std::string> kindWords() {
  std::vector<std::string> words;
  for (const judge::Kind &kind : judge::kinds())
    words.push_back(kind.word);
  return words;
}

/// Refuses files of tbc, which are JSON as configurations of DeepSpeed are.
static Status checkIsForeign(const std::string &text, const std::string &file) {
  json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("format") || !content["format"].is_string())
    return Status::ok();
  std::string format = content["format"];
  if (format == "tbc-plan")
    return Error{ErrorCode::Usage,
                 file + " is a tbc-plan, no configuration of another framework: `tbc explain " +
                     file + "` has its time and memory, `tbc export " + file +
                     " --to deepspeed` writes such a configuration"};
  if (format.rfind("tbc-", 0) == 0)
    return Error{ErrorCode::Usage,
                 file + " is a " + format + ", no configuration of another framework"};
  return Status::ok();
}

/// Reads a file, or takes the argument itself as a command line.
static Result<judge::Setup> readSetup(const Options &options) {
  std::error_code ignored;
  std::string text = options.configuration, source = "the command line";
  // FILE.py:FUNCTION is a file too.
  const size_t colon = text.rfind(".py:");
  const std::string file = colon == std::string::npos ? text : text.substr(0, colon + 3);
  if (std::filesystem::is_regular_file(file, ignored)) {
    auto content = readFile(file, ErrorCode::Usage);
    if (!content)
      return content.error();
    text = std::move(*content);
    source = options.configuration;
    if (Status status = checkIsForeign(text, source); !status)
      return status.error();
  } else if (text.find_first_of(" =") == std::string::npos) {
    return Error{ErrorCode::Usage, "\"" + text + "\" is no file and no command line"};
  }
  for (const judge::Kind &kind : judge::kinds())
    if (options.from == kind.word)
      return kind.read(text, source);
  return judge::recognise(text, source).read(text, source);
}

static json planJson(const planner::Plan &plan) {
  const planner::Prediction &p = plan.prediction;
  return {{"plan", planner::describe(plan)},
          {"seconds", {{"value", p.stepSeconds}, {"low", p.lowSeconds}, {"high", p.highSeconds}}},
          {"bytes", {{"value", p.peakBytes}, {"low", p.lowBytes}, {"high", p.highBytes}}},
          {"limit_bytes", p.limitBytes},
          {"memory", planner::name(p.memory)}};
}

static void printPlan(const char *label, const planner::Plan &plan) {
  const planner::Prediction &p = plan.prediction;
  std::cout << label << planner::describe(plan) << "\n  time    "
            << planner::formatSeconds(p.stepSeconds) << " (" << planner::formatSeconds(p.lowSeconds)
            << " to " << planner::formatSeconds(p.highSeconds) << ")\n  memory  "
            << planner::formatBytes(double(p.peakBytes)) << " ("
            << planner::formatBytes(double(p.lowBytes)) << " to "
            << planner::formatBytes(double(p.highBytes)) << ") of "
            << planner::formatBytes(double(p.limitBytes)) << ": "
            << (p.memory == planner::MemoryVerdict::DoesNotFit ? "runs out of memory"
                : p.memory == planner::MemoryVerdict::Tight    ? "may run out of memory"
                                                               : "fits")
            << "\n";
}

static void printJson(const Judgement &judgement) {
  json result = {{"format", "tbc-judge"},
                 {"version", 1},
                 {"kind", judgement.setup.kind},
                 {"executor", judgement.executor},
                 {"legal", judgement.setup.problems.empty()}};
  result["problems"] = json::array();
  for (const judge::Problem &problem : judgement.setup.problems)
    result["problems"].push_back({{"name", problem.name}, {"text", problem.text}});
  result["notes"] = judgement.setup.notes;
  if (judgement.plan)
    result["judged"] = planJson(*judgement.plan);
  if (judgement.best)
    result["instead"] = planJson(*judgement.best);
  std::cout << planner::jsonText(result);
}

static void printText(const Judgement &judgement) {
  FittedOutput fitted;
  const judge::Setup &setup = judgement.setup;
  std::cout << setup.kind << ": " << (setup.problems.empty() ? "legal" : "cannot run") << "\n";
  for (const judge::Problem &problem : setup.problems)
    std::cout << "  " << problem.name << ": " << problem.text << "\n";
  for (const std::string &note : setup.notes)
    std::cout << "  note: " << note << "\n";
  if (judgement.plan) {
    std::cout << "executor " << judgement.executor << "\n";
    printPlan("judged   ", *judgement.plan);
  }
  if (!judgement.best)
    return;
  printPlan("instead  ", *judgement.best);
  double theirs = judgement.plan->prediction.stepSeconds;
  double ours = judgement.best->prediction.stepSeconds;
  std::cout << planner::format("a step of tbc's plan takes %.1f %% of its time\n",
                               100 * ours / theirs);
}

static Result<int> print(const Judgement &judgement, const Options &options) {
  options.isJson ? printJson(judgement) : printText(judgement);
  bool fits =
      judgement.plan && judgement.plan->prediction.memory != planner::MemoryVerdict::DoesNotFit;
  return judgement.setup.problems.empty() && fits ? 0 : int(ErrorCode::NoFeasiblePlan);
}

/// Returns the devices with the constants of the framework's executor, and notes in `judgement` if
/// there is none.
static Result<planner::Cluster> clusterFor(const Options &options, Judgement &judgement) {
  judge::Setup &setup = judgement.setup;
  judgement.executor = !options.otherExecutor.empty() ? options.otherExecutor
                       : !setup.executor.empty()      ? setup.executor
                                                      : planner::ownExecutor;
  if (options.otherExecutor.empty() && setup.executor.empty())
    setup.notes.push_back("no executor describes the programs of " + setup.kind +
                          ": time and memory are those of tbc's own; --executor names another");
  auto cluster = planner::loadCluster(options.cluster.value_or(planner::defaultClusterName));
  if (!cluster)
    return ofKind(Problem::BadCluster, cluster.error());
  cluster = planner::runBy(*cluster, judgement.executor);
  if (!cluster)
    return ofKind(Problem::BadFlagValue, cluster.error());
  const bool keepsTokensWhole =
      setup.kind == "megatron" && !setup.has(judge::Field::SequenceParallel);
  auto adapt = [&](planner::Executor &executor) {
    if (setup.gradientWidth)
      executor.gradientWidth = double(*setup.gradientWidth);
    if (keepsTokensWhole && executor.tensorParallel == planner::TensorParallel::MegatronTokens)
      executor.tensorParallel = planner::TensorParallel::Megatron;
  };
  adapt(cluster->executor);
  for (planner::Cluster &group : cluster->groups)
    adapt(group.executor);
  return cluster;
}

/// Pads vocabularies as the configuration's framework does.
static void padVocabulary(judge::Setup &asked, driver::StepOptions &options) {
  constexpr int64_t largest = 1 << 20; // of --pad-vocabulary
  const int64_t multiple = asked.vocabularyMultiple.value_or(1);
  if (multiple > largest / asked.tp)
    asked.refuse("Vocabulary",
                 planner::format("tbc pads to multiples of up to %lld, not of %lld x tp=%lld",
                                 (long long)largest, (long long)multiple, (long long)asked.tp));
  else
    options.settings["pad_vocabulary"] = double(multiple * asked.tp);
}

/// Says how the sizes of vocabularies differ from the model's.
static void notePadding(judge::Setup &asked, const driver::TrainingStep &step) {
  for (const PaddedVocabulary &padded : step.paddedVocabularies)
    asked.notes.push_back(
        asked.vocabularyMultiple
            ? planner::format(
                  "the vocabulary of %lld is padded to %lld, a multiple of %lld x tp=%lld",
                  (long long)padded.size, (long long)padded.paddedSize,
                  (long long)*asked.vocabularyMultiple, (long long)asked.tp)
            : planner::format("the vocabulary of %lld does not divide over tp=%lld: every rank is "
                              "taken to have "
                              "as many rows as the fullest, %lld",
                              (long long)padded.size, (long long)asked.tp,
                              (long long)(padded.paddedSize / asked.tp)));
}

static Result<int> runJudge(Options options) {
  auto setup = readSetup(options);
  if (!setup)
    return setup.error();
  Judgement judgement{std::move(*setup), {}, {}, {}};
  judge::Setup &asked = judgement.setup;
  if (asked.sequence && options.model.seq < 0)
    options.model.seq = *asked.sequence;
  if (options.model.precision.empty())
    options.model.precision = asked.precision;
  options.matmulPrecision = asked.matmulPrecision;
  auto cluster = clusterFor(options, judgement);
  if (!cluster)
    return cluster.error();
  auto stepOptions = toStepOptions(options.model);
  if (!stepOptions)
    return stepOptions.error();
  padVocabulary(asked, *stepOptions);
  Progress progress("importing the model");
  auto context = driver::makeContext();
  auto step = driver::buildTrainingStep(*context, *stepOptions);
  if (!step)
    return step.error();
  planner::Job job = toJob(options, *stepOptions, **step, options.model.model);
  std::vector<std::string> paths;
  if (job.names)
    for (const auto &[name, path] : job.names->parameters)
      paths.push_back(path);
  const reshard::Graph &graph = (*step)->step.graph;
  if (!asked.globalBatch && options.batch > 0)
    asked.globalBatch = options.batch;
  const judge::ModelSizes sizes = judge::sizesOf(graph, paths);
  judge::checkSetup(asked, sizes, options.gpus);
  notePadding(asked, **step);
  if (!asked.globalBatch && asked.problems.empty())
    asked.refuse("Batch", "the configuration has no global batch: add --batch");
  progress.finish();
  if (!asked.problems.empty())
    return print(judgement, options);
  job.globalBatch = *asked.globalBatch;
  job.batchIsDefault = false;
  auto judged = planner::costOf(graph, job, *cluster, judge::pinsOf(asked, sizes));
  if (!judged) {
    asked.refuse("Planner", judged.error().message);
    return print(judgement, options);
  }
  judgement.plan = std::move(*judged);
  if (!options.isAlone) {
    planner::Pins open;
    open.top = 1;
    auto best = planner::search(graph, job, *cluster, open);
    if (best)
      judgement.best = std::move(best->plan);
    else
      asked.notes.push_back("tbc has no plan that fits: " + best.error().message);
  }
  return print(judgement, options);
}

void addJudgeCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand(
      "judge", "Say whether another framework's configuration runs, how fast, and what is faster");
  auto options = std::make_shared<Options>();
  command->add_option("configuration", options->configuration, "File, or a command line in quotes")
      ->required();
  command->add_option("--model", options->model.model, "ONNX model file")->required();
  command->add_option("--gpus", options->gpus, "Number of devices")->required()->check(atLeast(1));
  command->add_option("--from", options->from, "Kind of the configuration (default: recognised)")
      ->transform(oneOf(kindWords()));
  command->add_option("--cluster", options->cluster,
                      std::string("Cluster preset or TOML file (default: ") +
                          planner::defaultClusterName + ")");
  command->add_option(
      "--executor", options->otherExecutor,
      "The program that runs it (default: the configuration's framework, else tbc)");
  command->add_option("--seq", options->model.seq, "Sequence length (default: the configuration's)")
      ->check(atLeast(1));
  command
      ->add_option("--batch", options->batch,
                   "Global batch in samples, if the configuration has none")
      ->check(atLeast(1));
  command->add_flag("--alone", options->isAlone, "Do not search for a better plan");
  command->add_flag("--json", options->isJson, "Print JSON");
  command->callback([options, setAction] { setAction([options] { return runJudge(*options); }); });
}

} // namespace tbc::cli
