//===- ReportCommand.cpp - tbc report --------------------------------------------===//

#include "planner/plan/PlanFile.h"
#include "planner/report/Sensitivity.h"
#include "planner/view/Page.h"
#include "runtime/abi/Problem.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc/Command.h"
#include "tools/tbc/ProfileFile.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

namespace tbc::cli {

namespace {

struct Options {
  std::vector<std::string> plans;
  std::string output, sensitivity, profile;
  std::optional<int64_t> profileRank;
  bool json = false;
};

} // namespace

/// Adds the output of tbc explain --sensitivity --json to the plan that it is about.
static Status addSensitivity(const std::string &path, std::vector<planner::PlanView> &views) {
  auto text = readFile(path, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto answer = planner::readSensitivity(*text, path);
  if (!answer)
    return answer.error();
  for (planner::PlanView &view : views)
    if (view.plan.layout.decisions == answer->fingerprint) {
      view.sensitivity = std::move(*answer);
      return Status::ok();
    }
  return Error{ErrorCode::Usage, path + ": is about another plan than " + views.front().file +
                                     "; write it with tbc explain " + views.front().file +
                                     " --sensitivity --json"};
}

/// Adds the profile of a run of the first plan.
static Status addProfile(const Options &options, planner::PlanView &view) {
  auto timeline = planner::timelineOf(view.plan);
  if (!timeline)
    return Error{timeline.error().code, view.file + ": " + timeline.error().message};
  auto profile = readProfileFile(options.profile, view.plan, options.profileRank);
  if (!profile)
    return profile.error();
  view.measured = planner::MeasuredView{options.profile, int64_t(profile->ranks.size()),
                                        planner::residualsOf(*timeline, view.plan, *profile)};
  return Status::ok();
}

static Result<int> runReport(const Options &options) {
  std::vector<std::string> inputs = options.plans;
  inputs.insert(inputs.end(), {options.sensitivity, options.profile});
  if (Status status = checkWritable(options.output, inputs); !status)
    return status.error();
  std::vector<planner::PlanView> views;
  for (const std::string &path : options.plans) {
    auto text = readFile(path, ErrorCode::Usage);
    if (!text)
      return text.error();
    auto plan = planner::readPlan(*text, path);
    if (!plan)
      return ofKind(Problem::BadPlan, plan.error());
    if (std::string why = planner::whyNotDrawable(*plan); !why.empty())
      return problem(Problem::StalePlan, path + ": " + why);
    views.push_back(planner::viewOf(*plan, path));
  }
  if (!options.sensitivity.empty())
    if (Status status = addSensitivity(options.sensitivity, views); !status)
      return status.error();
  if (!options.profile.empty())
    if (Status status = addProfile(options, views.front()); !status)
      return status.error();
  if (options.json) {
    std::cout << planner::toJson(views);
    if (options.output.empty())
      return 0;
  }
  if (Status status = writeFile(options.output, planner::reportPage(views)); !status)
    return status.error();
  if (options.output != "-")
    std::cerr << "tbc: wrote " << options.output << ", a page for any browser\n";
  return 0;
}

void addReportCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("report", "Draw plans as one HTML page");
  auto options = std::make_shared<Options>();
  command->add_option("plans", options->plans, "plan.json; several are compared with the first")
      ->required();
  CLI::Option *output = command->add_option("-o,--output", options->output,
                                            "HTML file to write; - for standard output");
  command->add_option("--sensitivity", options->sensitivity,
                      "Draw this output of tbc explain --sensitivity --json too");
  CLI::Option *against = command->add_option(
      "--against", options->profile,
      "Profile of a run of the first plan, as for tbc timeline: draw it beside the prediction");
  command
      ->add_option("--profile-rank", options->profileRank,
                   "Rank of the first process in an export of Nsight Systems")
      ->check(atLeast(0))
      ->needs(against);
  CLI::Option *json = command->add_flag(
      "--json", options->json, "Print the content of the page as JSON; -o may be left out");
  command->callback([options, output, json, setAction] {
    if (output->count() == 0 && json->count() == 0)
      throw CLI::RequiredError("--output");
    setAction([options] { return runReport(*options); });
  });
}

} // namespace tbc::cli
