//===- ExplainCommand.cpp - tbc explain ------------------------------------------===//

#include "planner/explain/Explain.h"
#include "planner/explain/Sensitivities.h"
#include "planner/plan/PlanCheck.h"
#include "planner/plan/PlanFile.h"
#include "planner/report/Summary.h"
#include "planner/search/DeriveAgain.h"
#include "planner/view/TimelineText.h"
#include "runtime/abi/Problem.h"
#include "tools/driver/Context.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/Progress.h"

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct Options {
  std::string plan, model, tensor, why, other, derived;
  std::optional<int64_t> rank;
  bool memory = false, comms = false, layers = false, decisions = false, json = false;
  bool kernels = false, sensitivity = false, timeline = false;
};

} // namespace

static Result<int> print(const planner::Report &report, const char *about, bool json) {
  if (json) {
    std::cout << planner::toJson(report, about);
    return 0;
  }
  FittedOutput fitted;
  std::cout << planner::toText(report, terminalColumns().value_or(0));
  return 0;
}

static Result<int> runDiff(const planner::Plan &plan, const Options &options) {
  auto text = readFile(options.other, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto other = planner::readPlan(*text, options.other);
  if (!other)
    return ofKind(Problem::BadPlan, other.error());
  planner::Report report = planner::explainDifferences(plan, *other);
  if (auto code = print(report, "differences", options.json); !code)
    return code;
  return report.tables.front().rows.empty() ? 0 : int(ErrorCode::DifferencesFound);
}

/// Returns the file of the plan's model.
static std::filesystem::path modelOf(const planner::Plan &plan, const Options &options) {
  return options.model.empty()
             ? std::filesystem::path(options.plan).parent_path() / plan.job.modelPath
             : std::filesystem::path(options.model);
}

/// Plans again after one change each.
static Result<int> runSensitivity(const driver::LoadedPlan &loaded, Progress &progress,
                                  const Options &options) {
  planner::SensitivityQuestion question{loaded.step->step.graph, loaded.plan, {}, {}};
  question.graphOfSequence = [&](int64_t sequence) -> Result<reshard::Graph> {
    planner::Job job = loaded.plan.job;
    job.bindings["seq"] = sequence;
    auto context = driver::makeContext();
    auto step = driver::stepOf(*context, job, loaded.step->options.modelPath);
    return step ? Result<reshard::Graph>(std::move((*step)->step.graph)) : step.error();
  };
  question.tell = [&](const std::string &change, int index, int count) {
    progress.setPhase("planning again, " + std::to_string(index) + " of " + std::to_string(count) +
                      ": " + change);
  };
  auto answer = planner::sensitivityOf(question);
  progress.finish();
  if (!answer)
    return answer.error();
  if (options.json) {
    std::cout << planner::toJson(*answer);
    return 0;
  }
  FittedOutput fitted;
  std::cout << planner::toText(*answer);
  return 0;
}

/// Runs the parts of the command that need the model.
static Result<int> runDetail(const std::string &text, const Options &options) {
  Progress progress("importing the model");
  auto loaded = driver::loadPlan(options.plan, text, options.model);
  if (!loaded)
    return loaded.error();
  if (Status status = driver::checkPredictions(*loaded, options.plan); !status)
    return status.error();
  if (options.sensitivity)
    return runSensitivity(*loaded, progress, options);
  auto explained = planner::ExplainedPlan::make(loaded->step->step.graph, loaded->plan);
  if (!explained)
    return ofKind(Problem::BadPlan, explained.error());
  if (!options.tensor.empty()) {
    auto report = planner::explainTensor(*explained, options.tensor);
    return report ? print(*report, "tensor", options.json)
                  : ofKind(Problem::BadQuestion, report.error());
  }
  if (!options.why.empty()) {
    auto report = planner::explainWhy(*explained, options.why, progress.searching());
    progress.finish();
    return report ? print(*report, "why", options.json)
                  : ofKind(Problem::BadQuestion, report.error());
  }
  progress.finish();
  if (options.memory)
    return print(planner::explainMemory(*explained), "memory", options.json);
  if (options.comms)
    return print(planner::explainCommunication(*explained), "communication", options.json);
  if (options.kernels)
    return print(planner::explainKernels(*explained), "kernels", options.json);
  return print(planner::explainLayers(*explained), "layers", options.json);
}

/// Writes the plan with predictions derived from its decisions.
static Result<int> runDerive(const std::string &text, const Options &options) {
  auto loaded = driver::loadPlan(options.plan, text, options.model);
  if (!loaded)
    return loaded.error();
  const Status derived = planner::deriveAgain(loaded->step->step.graph, loaded->plan);
  if (!derived)
    return ofKind(Problem::BadPlan,
                  Error{derived.error().code, options.plan + ": " + derived.error().message});
  Status status = writeFile(options.derived, planner::writePlan(loaded->plan));
  return status ? Result<int>(0) : status.error();
}

/// Recomputes the predictions if the model is available; else prints that they were only checked
/// against each other.
static Status checkAgainstModel(const std::string &text, const planner::Plan &plan,
                                const Options &options) {
  const std::filesystem::path model = modelOf(plan, options);
  std::error_code ignored;
  if (options.model.empty() && !std::filesystem::exists(model, ignored)) {
    if (std::string why = planner::whyStale(plan); !why.empty())
      return problem(Problem::StalePlan, options.plan + ": " + why);
    std::cerr << "tbc: " << model.string()
              << " is not there, so the plan's predictions were not derived again, only compared "
                 "with each other; name the model with --model\n";
    return Status::ok();
  }
  auto loaded = driver::loadPlan(options.plan, text, options.model);
  return loaded ? driver::checkPredictions(*loaded, options.plan) : Status(loaded.error());
}

static Result<int> runTimeline(const planner::Plan &plan, const Options &options) {
  auto timeline = planner::timelineOf(plan);
  if (!timeline)
    return Error{timeline.error().code, options.plan + ": " + timeline.error().message};
  if (options.json)
    return print(planner::timelineReport(*timeline), "timeline", true);
  std::cout << planner::timelineText(*timeline, outputColumns(/*least=*/40));
  return 0;
}

static Result<int> runExplain(const Options &options) {
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  if (!options.derived.empty())
    return runDerive(*text, options);
  auto plan = planner::readPlan(*text, options.plan);
  if (!plan)
    return ofKind(Problem::BadPlan, plan.error());
  if (!options.other.empty())
    return runDiff(*plan, options);
  if (options.rank) {
    auto report = planner::explainRank(*plan, *options.rank);
    return report
               ? print(*report, "rank", options.json)
               : ofKind(Problem::BadQuestion,
                        Error{report.error().code, options.plan + ": " + report.error().message});
  }
  if (options.timeline)
    return runTimeline(*plan, options);
  if (options.decisions) {
    if (std::string why = planner::whyStale(*plan); !why.empty())
      return problem(Problem::StalePlan, options.plan + ": " + why);
    return print(planner::explainDecisions(*plan), "decisions", options.json);
  }
  std::error_code ignored;
  if (options.sensitivity && !std::filesystem::exists(modelOf(*plan, options), ignored))
    return problem(Problem::BadQuestion, "--sensitivity plans again, which needs the model: " +
                                             modelOf(*plan, options).string() +
                                             " is not there; name the model with --model");
  if (options.sensitivity || options.memory || options.comms || options.kernels || options.layers ||
      !options.tensor.empty() || !options.why.empty())
    return runDetail(*text, options);
  if (Status status = checkAgainstModel(*text, *plan, options); !status)
    return status.error();
  if (options.json) {
    std::cout << planner::writePlan(*plan);
    return 0;
  }
  FittedOutput fitted;
  std::cout << planner::summarize(*plan);
  return 0;
}

void addExplainCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("explain", "Say what a plan is and why");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_option("--model", options->model, "Model file, if not where the plan says");
  CLI::Option_group *about = command->add_option_group("about", "What to explain, instead of all");
  about->add_flag("--memory", options->memory,
                  "Every line of memory by stage, the ops at which most is live, the largest "
                  "tensors");
  about->add_flag("--comms", options->comms,
                  "The collectives by kind, exposed and hidden, and what causes them");
  about->add_flag("--kernels", options->kernels,
                  "The kernels by kind, with their seconds, share and roof, as the plan prices "
                  "them");
  about->add_flag("--layers", options->layers, "The layer table, every repeat by itself");
  about->add_option("--tensor", options->tensor,
                    "The tensors that a glob names: layout, shardings, bytes, collectives, why");
  about->add_option("--why", options->why,
                    "What another decision would cost, or one of the plan's own gains: tp=8, pp=, "
                    "dp=, fsdp=, zero=, micro-batch=, recompute=, schedule=, virtual-stages=");
  about->add_option("--rank", options->rank,
                    "All that a rank holds, computes and says, and to whom; without the model");
  about->add_flag("--decisions", options->decisions,
                  "The decisions in order, with their origin and rivals; without the model");
  about->add_flag("--timeline", options->timeline,
                  "The step of each stage as a line of text; without the model");
  about->add_flag("--sensitivity", options->sensitivity,
                  "What 1 GiB of memory, 10 % of each bandwidth and of matmuls, a node, twice the "
                  "batch and half the sequence are worth, by planning again");
  about->add_option("--diff", options->other,
                    "What differs from another plan.json; exit code 10 if anything does");
  about->add_option("--derive", options->derived,
                    "Write the plan here with the predictions that its decisions give: after "
                    "editing decisions by hand");
  about->require_option(0, 1);
  command->add_flag("--json", options->json, "Print it as JSON; alone, the plan itself");
  command->callback(
      [options, setAction] { setAction([options] { return runExplain(*options); }); });
}

} // namespace tbc::cli
