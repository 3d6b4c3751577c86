//===- SizeCommand.cpp - tbc size -------------------------------------------------===//

#include "planner/size/Size.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/Context.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/PlanOptions.h"
#include "tools/tbc/Progress.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct Options {
  PlanOptions plan; // the model and the batch
  std::string tokens, deadline, budget, maxBatch;
  std::vector<std::string> clusters;
  int64_t from = 8, to = 1024;
  std::string prices, pricesOutput, output;
  bool json = false, all = false;
};

} // namespace

/// Reads a number such as "15T" from `flag`.
static Result<double> countOf(const std::string &flag, const std::string &text) {
  if (auto value = planner::parseCount(text))
    return *value;
  return Error{ErrorCode::Usage,
               flag + " " + text + ": expected a number from 1 to 1e18, such as 300B, 15T or 2e6"};
}

/// Sets what `options` asks for. Errors: Usage, naming the flag or the file.
static Status setQuestion(const Options &options, planner::SizeQuestion &question) {
  if (options.from > options.to)
    return Error{ErrorCode::Usage, "--gpus-from " + std::to_string(options.from) +
                                       " is more than --gpus-to " + std::to_string(options.to)};
  question.fromDevices = options.from;
  question.toDevices = options.to;
  auto tokens = countOf("--tokens", options.tokens);
  if (!tokens)
    return tokens.error();
  question.tokens = *tokens;
  if (!options.deadline.empty()) {
    question.deadlineDays = planner::parseDays(options.deadline);
    if (!question.deadlineDays)
      return Error{ErrorCode::Usage, "--deadline " + options.deadline +
                                         ": expected days, weeks or hours, such as 30d, 2w or 36h"};
  }
  for (auto [flag, text, value] :
       {std::tuple("--budget", &options.budget, &question.budget),
        {"--max-batch-tokens", &options.maxBatch, &question.maxBatchTokens}}) {
    if (text->empty())
      continue;
    auto count = countOf(flag, *text);
    if (!count)
      return count.error();
    *value = *count;
  }
  question.prices = planner::examplePrices();
  if (!options.prices.empty()) {
    auto text = readFile(options.prices, ErrorCode::Usage);
    if (!text)
      return text.error();
    auto prices = planner::parsePrices(*text, options.prices);
    if (!prices)
      return prices.error();
    question.prices = std::move(*prices);
  }
  std::vector<std::string> names = options.clusters;
  if (names.empty()) // presets with a price
    for (const std::string &preset : planner::clusterPresets())
      if (question.prices.find(preset))
        names.push_back(preset);
  if (names.empty())
    names.push_back(planner::defaultClusterName);
  for (const std::string &name : names) {
    auto cluster = planner::loadCluster(name);
    if (cluster)
      cluster = planner::runBy(*cluster, planner::ownExecutor);
    if (!cluster)
      return ofKind(Problem::BadCluster, cluster.error());
    question.clusters.push_back(std::move(*cluster));
  }
  bool hasPrice = false;
  for (const planner::Cluster &cluster : question.clusters)
    hasPrice |= question.prices.find(cluster.name) != nullptr;
  if (question.budget && !hasPrice)
    return Error{ErrorCode::Usage, "--budget: no price of " + question.clusters.front().name +
                                       " is known; write one with --write-prices FILE, and read "
                                       "it with --prices FILE"};
  return Status::ok();
}

static Result<int> runSize(const Options &options) {
  if (!options.pricesOutput.empty()) {
    Status status = writeFile(options.pricesOutput, planner::examplePricesText());
    return status ? Result<int>(0) : status.error();
  }
  if (options.plan.model.model.empty() || options.tokens.empty())
    return Error{ErrorCode::Usage, std::string(options.tokens.empty() ? "--tokens" : "model") +
                                       " is required; see 'tbc size --help'"};
  if (Status status = checkWritable(options.output); !status)
    return status.error();
  auto asked = toStepOptions(options.plan.model);
  if (!asked)
    return asked.error();
  reshard::Graph none;
  planner::SizeQuestion checked{none, {}}; // flags are checked before the model is read
  if (Status status = setQuestion(options, checked); !status)
    return status.error();
  Progress progress("importing the model");
  auto context = driver::makeContext();
  auto step = driver::buildTrainingStep(*context, *asked);
  if (!step)
    return step.error();
  planner::SizeQuestion question{(*step)->step.graph, {}};
  if (Status status = setQuestion(options, question); !status)
    return status.error();
  PlanOptions devices = options.plan;
  devices.gpus = options.to;
  question.job = toJob(devices, *asked, **step, options.plan.model.model);
  question.setDevices = [&](planner::Job &job, int64_t gpus) {
    devices.gpus = gpus;
    setDevices(job, devices);
  };
  constexpr double defaultTie = 0.02; // of tbc plan
  question.pins.tie = defaultTie;
  question.tell = [&](const std::string &size, int index, int count) {
    progress.setPhase("planning, " + std::to_string(index) + " of " + std::to_string(count) + ": " +
                      size);
  };
  auto answer = planner::sizesOf(question);
  progress.finish();
  if (!answer)
    return answer.error();
  if (!options.output.empty())
    if (Status status = writeFile(options.output, planner::toSvg(*answer)); !status)
      return status.error();
  if (options.output != "-")
    std::cout << (options.json ? planner::toJson(*answer) : planner::toText(*answer, options.all));
  return 0;
}

void addSizeCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("size", "Find devices, days and money for a number of tokens");
  auto options = std::make_shared<Options>();
  addModelOptions(*command, options->plan.model);
  command->option_defaults()->group("The training");
  command->add_option("--tokens", options->tokens,
                      "Tokens of the whole training, such as 300B or 15T; samples for a model "
                      "without sequences");
  CLI::Option *batch =
      command
          ->add_option("--batch", options->plan.batch,
                       "Global batch in samples at every size (default: as tbc plan)")
          ->check(atLeast(1));
  command
      ->add_option("--max-batch-tokens", options->maxBatch,
                   "Largest batch in tokens that trains well; each size then takes the largest "
                   "within it")
      ->excludes(batch);
  command->add_option("--deadline", options->deadline, "Mark sizes within it, such as 30d or 36h");
  command->add_option("--budget", options->budget,
                      "Mark sizes within it, in the currency of the prices, such as 2e6");
  command->option_defaults()->group("The devices");
  command
      ->add_option("--cluster", options->clusters,
                   "Cluster preset or TOML file (repeatable; default: presets with a price)")
      ->allow_extra_args(false);
  CLI::Option *from =
      command->add_option("--gpus-from", options->from, "Smallest number of devices; sizes double")
          ->check(between(1, planner::mostDevices))
          ->capture_default_str();
  command->add_option("--gpus-to", options->to, "Largest number of devices")
      ->check(between(1, planner::mostDevices))
      ->capture_default_str();
  command->add_option("--prices", options->prices, "TOML file of prices (default: examples)");
  command->add_option("--write-prices", options->pricesOutput,
                      "Write the example prices here, to be edited, and stop");
  command->option_defaults()->group("Answers");
  command->add_flag("--all", options->all, "Print every size, not only the Pareto front");
  command->add_option("-o,--output", options->output, "Write an SVG picture (- for stdout)");
  command->add_flag("--json", options->json, "Print every size as JSON");
  command->callback([options, from, setAction] {
    // Without --gpus-from, --gpus-to may be less than the default begins with.
    if (from->count() == 0)
      options->from = std::min(options->from, options->to);
    setAction([options] { return runSize(*options); });
  });
}

} // namespace tbc::cli
