//===- JobFile.cpp - tbc plan --job: many configurations, one process ----------===//

#include "planner/devices/Cluster.h"
#include "planner/plan/PlanFile.h"
#include "runtime/abi/ClosestWord.h"
#include "runtime/abi/Problem.h"
#include "runtime/abi/Sha256.h"
#include "tools/driver/Context.h"
#include "tools/tbc-run/Shell.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/PlanOptions.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>

namespace tbc::cli {

using Json = nlohmann::json;

namespace {

/// The planner's view of a model; its IR is already freed.
struct JobModel {
  reshard::Graph graph;
  planner::Job job; // without devices and batch
};

/// Costs the lines of a file and caches their shared models and clusters.
class JobRunner {
public:
  /// Returns the answer to one line, as JSON. `number` counts from 1.
  Json run(const std::string &line, int64_t number);
  bool failed = false;

private:
  Result<Json> cost(const Json &line);
  Result<const JobModel *> modelOf(const PlanOptions &options, const std::string &key);
  Result<const planner::Cluster *> clusterOf(const std::string &name, const std::string &executor);

  // Errors are cached too.
  std::map<std::string, Result<JobModel>> models;
  std::map<std::pair<std::string, std::string>, Result<planner::Cluster>> clusters; // and executor
};

} // namespace

/// Converts a line to command-line flags. Errors: Usage, naming the key.
static Result<std::vector<std::string>> argumentsOf(const Json &line, const CLI::App &app,
                                                    std::string &model) {
  std::vector<std::string> names, arguments;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      names.push_back(name);
  for (const auto &[key, value] : line.items()) {
    if (key == "id")
      continue; // returned to the caller
    auto fail = [&name = key](const std::string &message) {
      return Error{ErrorCode::Usage, "key \"" + name + "\" " + message};
    };
    if (key == "model") {
      if (!value.is_string())
        return fail("must be a path");
      model = value.get<std::string>();
      continue;
    }
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      std::string closest = closestWord(key, names);
      return fail("is no flag of tbc plan" +
                  (closest.empty() ? "" : "; did you mean \"" + closest + "\"?"));
    }
    auto textOf = [](const Json &item) {
      return item.is_string() ? item.get<std::string>() : item.dump();
    };
    for (const Json &item : value.is_array() ? value : Json::array({value})) {
      if (item.is_structured() || item.is_null())
        return fail("must be a text, a number, true, false, or a list of those");
      if (item.is_boolean()) {
        if (item.get<bool>())
          arguments.push_back("--" + key);
      } else {
        arguments.push_back("--" + key + "=" + textOf(item));
      }
    }
  }
  if (model.empty())
    return Error{ErrorCode::Usage, "key \"model\" is missing"};
  return arguments;
}

Result<const JobModel *> JobRunner::modelOf(const PlanOptions &options, const std::string &key) {
  auto found = models.find(key);
  if (found == models.end()) {
    auto build = [&]() -> Result<JobModel> {
      auto asked = toStepOptions(options.model);
      if (!asked)
        return asked.error();
      auto context = driver::makeContext();
      auto step = driver::buildTrainingStep(*context, *asked);
      if (!step)
        return step.error();
      planner::Job job = toJob(options, *asked, **step, options.model.model);
      return JobModel{std::move((*step)->step.graph), std::move(job)};
    };
    found = models.emplace(key, build()).first;
  }
  if (!found->second)
    return found->second.error();
  return &*found->second;
}

Result<const planner::Cluster *> JobRunner::clusterOf(const std::string &name,
                                                      const std::string &executor) {
  auto found = clusters.find({name, executor});
  if (found == clusters.end()) {
    auto cluster = planner::loadCluster(name);
    if (cluster)
      cluster = planner::runBy(*cluster, executor);
    found = clusters.emplace(std::pair(name, executor), std::move(cluster)).first;
  }
  if (!found->second)
    return found->second.error();
  return &*found->second;
}

/// Returns the predictions of `plan`, with the keys of plan.json.
static Json answerOf(const planner::Plan &plan) {
  const planner::Prediction &p = plan.prediction;
  Json whole = Json::parse(planner::writePlan(plan));
  Json answer = {{"step_seconds", p.stepSeconds},
                 {"peak_bytes", p.peakBytes},
                 {"fits", p.memory != planner::MemoryVerdict::DoesNotFit},
                 {"memory", planner::name(p.memory)}};
  for (const char *key : {"mesh", "micro_batch", "accumulation", "schedule", "idle_devices"})
    answer[key] = whole[key];
  answer["batch"] = plan.job.globalBatch;
  answer["zero"] = plan.parameterDefault.zero;
  answer["keep_gathered"] = plan.parameterDefault.keepGathered;
  answer["recompute"] = planner::toString(plan.recompute);
  answer["offload"] = planner::offloadText(plan.offload);
  if (!plan.chunkStage.empty())
    answer["placement"] = plan.chunkStage;
  for (const char *key : {"low_seconds", "high_seconds", "low_bytes", "high_bytes", "limit_bytes",
                          "host_bytes", "host_limit_bytes", "mfu", "model_flops", "time", "stages"})
    answer[key] = whole["prediction"][key];
  return answer;
}

Result<Json> JobRunner::cost(const Json &line) {
  CLI::App app;
  PlanOptions options;
  addPlanOptions(app, options);
  std::string model;
  auto arguments = argumentsOf(line, app, model);
  if (!arguments)
    return arguments.error();
  try {
    parseWords(app, *arguments);
  } catch (const CLI::ParseError &error) {
    return Error{ErrorCode::Usage, error.what()};
  }
  if (options.gpus == 0)
    return Error{ErrorCode::Usage, "key \"gpus\" is missing"};
  options.model.model = model;
  auto pins = toPins(options);
  if (!pins)
    return pins.error();
  auto cluster = clusterOf(options.cluster.value_or(planner::defaultClusterName), options.executor);
  if (!cluster)
    return cluster.error();
  // The model's cache key: all keys except devices and decisions.
  Json about = line;
  for (const char *key : {"id",
                          "gpus",
                          "cluster",
                          "executor",
                          "batch",
                          "mesh",
                          "strategy",
                          "zero",
                          "micro-batch",
                          "virtual-stages",
                          "context",
                          "sequence-order",
                          "placement",
                          "schedule",
                          "recompute",
                          "offload",
                          "bucket-size",
                          "gather-size",
                          "prefetch",
                          "pin",
                          "forbid",
                          "memory-limit",
                          "memory-risk",
                          "top",
                          "expert-imbalance",
                          "matmul-precision"})
    about.erase(key);
  auto known = modelOf(options, about.dump());
  if (!known)
    return known.error();
  if (Status status = checkExperts(options, (*known)->graph); !status)
    return status.error();
  planner::Job job = (*known)->job;
  setDevices(job, options);
  auto plan = planner::costOf((*known)->graph, job, **cluster, *pins);
  if (!plan)
    return plan.error();
  return answerOf(*plan);
}

Json JobRunner::run(const std::string &text, int64_t number) {
  Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Result<Json> answer =
      line.is_object() ? cost(line) : Error{ErrorCode::Usage, "the line is no JSON object"};
  Json result = Json::object();
  if (answer)
    result = *answer;
  else
    result["error"] = {{"code", int(answer.error().code)},
                       {"message", withCode(answer.error()).message}};
  failed |= !answer;
  result["format"] = "tbc-job";
  result["version"] = 1;
  result["line"] = number;
  if (line.is_object() && line.contains("id"))
    result["id"] = line["id"];
  return result;
}

Result<int> runJobs(const std::string &path) {
  auto text = readFile(path, ErrorCode::Usage);
  if (!text)
    return text.error();
  JobRunner runner;
  std::istringstream lines(*text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    std::cout << runner.run(line, number).dump(-1, ' ', false, Json::error_handler_t::replace)
              << "\n"
              << std::flush;
  }
  return runner.failed ? int(ErrorCode::Other) : 0;
}

} // namespace tbc::cli
