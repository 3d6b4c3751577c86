//===- TimelineCommand.cpp - tbc timeline ----------------------------------------===//

#include "planner/plan/PlanFile.h"
#include "planner/view/Against.h"
#include "planner/view/Timeline.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc-run/Terminal.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/ProfileFile.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

namespace tbc::cli {

namespace {

struct Options {
  std::string plan, output, profile, ranks = "stages";
  std::optional<int64_t> profileRank;
};

} // namespace

/// Reads a number at the begin of `text` and removes it; false if there is none.
static bool takeNumber(std::string_view &text, int64_t &number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0)
    return false;
  text.remove_prefix(size_t(end - text.data()));
  return true;
}

/// Returns the ranks of --ranks, ascending; none for "stages". Example: "0,8-10" gives 0, 8, 9, 10.
static Result<std::vector<int64_t>> parseRanks(const std::string &text, int64_t numRanks) {
  if (text == "stages")
    return std::vector<int64_t>();
  const std::string whole = text == "all" ? "0-" + std::to_string(numRanks - 1) : text;
  std::set<int64_t> ranks;
  std::string_view rest = whole;
  while (true) {
    int64_t first = 0, last = 0;
    bool isRead = takeNumber(rest, first);
    last = first;
    if (isRead && !rest.empty() && rest.front() == '-') {
      rest.remove_prefix(1);
      isRead = takeNumber(rest, last);
    }
    if (!isRead || last < first || (!rest.empty() && rest.front() != ','))
      return Error{ErrorCode::Usage, "--ranks: \"" + text +
                                         "\" is no list of ranks; write stages, all, or for "
                                         "example 0,8-15"};
    if (last >= numRanks)
      return Error{ErrorCode::Usage, "--ranks: there is no rank " + std::to_string(last) +
                                         "; the plan has ranks 0 to " +
                                         std::to_string(numRanks - 1)};
    for (int64_t rank = first; rank <= last; ++rank)
      ranks.insert(rank);
    if (rest.empty())
      return std::vector<int64_t>(ranks.begin(), ranks.end());
    rest.remove_prefix(1);
  }
}

static bool isPresetName(const std::string &name) {
  const std::vector<std::string> presets = planner::clusterPresets();
  return std::find(presets.begin(), presets.end(), name) != presets.end();
}

/// Returns the command that fits the cluster to the measured step.
static std::string refitText(const Options &options, const planner::Plan &plan) {
  const bool isPreset = isPresetName(plan.cluster.name);
  return "\nrefit: tbc calibrate --from-run " + options.profile + " --plan " + options.plan +
         (isPreset ? "" : " --cluster FILE") + " -o measured.toml\n";
}

static Result<int> runTimeline(const Options &options) {
  if (Status status = checkWritable(options.output, {options.plan}); !status)
    return status.error();
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto plan = planner::readPlan(*text, options.plan);
  if (!plan)
    return ofKind(Problem::BadPlan, plan.error());
  auto ranks = parseRanks(options.ranks, plan->mesh.numRanks());
  if (!ranks)
    return ranks.error();
  auto timeline = planner::timelineOf(*plan);
  if (!timeline)
    return Error{timeline.error().code, options.plan + ": " + timeline.error().message};
  planner::MeasuredStep profile;
  if (!options.profile.empty()) {
    auto read = readProfileFile(options.profile, *plan, options.profileRank);
    if (!read)
      return read.error();
    profile = std::move(*read);
    if (options.ranks == "stages")
      *ranks = profile.ranks;
  }
  auto trace = planner::traceJson(*timeline, *plan, *ranks, profile.events);
  if (!trace)
    return trace.error();
  if (Status status = writeFile(options.output, *trace); !status)
    return status.error();
  if (!options.profile.empty() && options.output != "-") {
    FittedOutput fitted;
    std::cout << planner::toText(planner::compareProfile(*timeline, *plan, profile))
              << refitText(options, *plan);
  }
  if (options.output != "-")
    std::cerr << "tbc: wrote " << options.output
              << "; open it in https://ui.perfetto.dev or chrome://tracing\n";
  return 0;
}

void addTimelineCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("timeline", "Write the predicted step as a trace for Perfetto");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_option("-o,--output", options->output, "Trace to write; - for standard output")
      ->required();
  command
      ->add_option("--ranks", options->ranks,
                   "stages: one rank of each stage; all; or ranks, for example 0,8-15")
      ->capture_default_str();
  CLI::Option *against =
      command->add_option("--against", options->profile,
                          "Profile of tbc run, torch.profiler or Nsight Systems (SQLite): draw it "
                          "beside the prediction, and print the residuals");
  command
      ->add_option("--profile-rank", options->profileRank,
                   "Rank of the first process in an export of Nsight Systems")
      ->check(atLeast(0))
      ->needs(against);
  command->callback(
      [options, setAction] { setAction([options] { return runTimeline(*options); }); });
}

} // namespace tbc::cli
