//===- VerifyCommand.cpp - tbc verify --------------------------------------------===//

#include "tools/driver/Context.h"
#include "tools/driver/Shrink.h"
#include "tools/driver/Verify.h"
#include "tools/tbc-run/NumberFlags.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>
#include <memory>

namespace tbc::cli {

namespace {

struct Options {
  std::string plan, model;
  driver::VerifyOptions verify;
  bool residuesOnly = false, full = false;
  int64_t ranks = 16;
};

} // namespace

/// Prints a verdict over one kind of comparison, and the first tensors that differ.
static void printComparisons(const char *title, const std::vector<driver::Comparison> &lines,
                             bool floats) {
  size_t equal = 0;
  double worst = 0;
  for (const driver::Comparison &line : lines) {
    equal += line.equal;
    if (floats && line.bound > 0)
      worst = std::max(worst, line.error / line.bound);
  }
  std::printf("%-9s %zu of %zu tensors %s", title, equal, lines.size(),
              floats ? "within their bound" : "equal bit for bit");
  if (floats)
    std::printf(" (worst at %.2f of it)", worst);
  std::printf("\n");
  int shown = 0;
  for (const driver::Comparison &line : lines)
    if (!line.equal && shown++ < 10) {
      if (floats)
        std::printf("  differs: %s, error %.3g, bound %.3g\n", line.name.c_str(), line.error,
                    line.bound);
      else
        std::printf("  differs: %s\n", line.name.c_str());
    }
}

static Result<int> runVerify(const Options &options) {
  auto text = readFile(options.plan, ErrorCode::Usage);
  if (!text)
    return text.error();
  auto loaded = driver::loadPlan(options.plan, *text, options.model);
  if (!loaded)
    return loaded.error();
  if (Status status = driver::checkPredictions(*loaded, options.plan); !status)
    return status.error();
  driver::VerifyOptions verify = options.verify;
  verify.floats = !options.residuesOnly;
  driver::TrainingStep *step = loaded->step.get();
  const planner::Plan *plan = &loaded->plan;
  driver::Shrunk shrunk;
  if (!options.full) {
    auto small = driver::shrink(*step, *plan, options.ranks);
    if (!small)
      return small.error();
    shrunk = std::move(*small);
    step = shrunk.step.get();
    plan = &shrunk.plan;
    if (!shrunk.notes.empty())
      std::printf("shrunk for this check, structure kept (--full: do not):\n");
    for (const std::string &note : shrunk.notes)
      std::printf("  %s\n", note.c_str());
  }
  auto report = driver::verifyPlan(*step, *plan, verify);
  if (!report)
    return report.error();
  std::printf("%s on %lld ranks against the serial program, %d steps\n",
              planner::toString(plan->mesh).c_str(), (long long)report->ranks, verify.steps);
  printComparisons("residues", report->residues, false);
  if (!report->overflow.empty()) {
    printComparisons("overflow", report->overflow, false);
    std::printf("  in %s, planted in step 1, which is skipped\n", report->overflowPlace.c_str());
  }
  if (verify.floats)
    printComparisons("floats", report->floats, true);
  if (report->lossScale)
    std::printf("  at loss scale %g, where no step overflows\n", *report->lossScale);
  std::printf("%lld collectives per step on stage 0, as predicted\n",
              (long long)report->collectives);
  std::printf("%s\n", report->passed() ? "verified: the parallel program is the serial one"
                                       : "FAILED: the parallel program is not the serial one");
  return report->passed() ? 0 : int(ErrorCode::VerificationFailed);
}

void addVerifyCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command = app.add_subcommand(
      "verify", "Run all ranks of a plan here and compare with the serial program");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "plan.json")->required();
  command->add_option("--model", options->model, "Model file, if not where the plan says");
  command->add_option("--steps", options->verify.steps, "Training steps to run")
      ->check(between(1, 100))
      ->capture_default_str();
  command->add_option("--seed", options->verify.seed, "Seed of the inputs")->capture_default_str();
  command
      ->add_option("--ranks", options->ranks,
                   "Most ranks to run; a larger mesh is shrunk to 2 per axis")
      ->check(between(1, 1024))
      ->capture_default_str();
  command->add_flag("--full", options->full,
                    "Run the plan as it is: no smaller mesh, batch or sizes");
  command->add_flag("--residues-only", options->residuesOnly, "Leave out the float comparison");
  command->callback([options, setAction] { setAction([options] { return runVerify(*options); }); });
}

} // namespace tbc::cli
