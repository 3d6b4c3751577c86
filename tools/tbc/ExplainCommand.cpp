//===- ExplainCommand.cpp - tbc explain ------------------------------------------===//

#include "planner/core/Plan.h"
#include "planner/core/Summary.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

namespace tbc::cli {

namespace {

struct Options {
  std::string plan;
  bool json = false;
};

} // namespace

static Result<int> runExplain(const Options &options) {
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto plan = planner::readPlan(*text, options.plan);
  if (!plan)
    return plan.error();
  std::cout << (options.json ? planner::writePlan(*plan) : planner::summarize(*plan));
  return 0;
}

void addExplainCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand("explain", "Say what a plan is and why");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_flag("--json", options->json, "Print the plan as canonical JSON");
  command->callback(
      [options, setAction] { setAction([options] { return runExplain(*options); }); });
}

} // namespace tbc::cli
