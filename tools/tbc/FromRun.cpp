//===- FromRun.cpp - tbc calibrate --from-run ------------------------------===//

#include "tools/tbc/FromRun.h"

#include "planner/plan/PlanFile.h"
#include "planner/support/Format.h"
#include "planner/view/Against.h"
#include "planner/view/Nsight.h"
#include "runtime/abi/Problem.h"
#include "tools/calibrate/StepTimes.h"
#include "tools/tbc/Command.h"

#include <algorithm>
#include <iostream>

namespace tbc::cli {

using planner::formatSeconds;

/// Returns the seconds of the steps in a log, or of the one step in a profile.
static Result<std::vector<double>> stepsOf(const std::string &path, const planner::Plan &plan) {
  auto step = [](const Result<planner::MeasuredStep> &profile) -> Result<std::vector<double>> {
    if (!profile)
      return profile.error();
    return std::vector<double>{profile->seconds.at("step")};
  };
  if (planner::isSqlite(path))
    return step(planner::readNsight(path, plan, 0)); // any rank has the step's time
  auto text = readFile(path, ErrorCode::Usage);
  if (!text)
    return text.error();
  return calibrate::isTrace(*text) ? step(planner::readProfile(*text, path, plan))
                                   : calibrate::readStepTimes(*text, path);
}

/// Returns the text of the cluster file that `plan` was made with.
static Result<std::string> textOfCluster(const FromRunOptions &options, const planner::Plan &plan) {
  const std::string name = options.cluster.value_or(plan.cluster.name);
  auto text = planner::clusterText(name);
  if (!text)
    return options.cluster
               ? text.error()
               : Error{ErrorCode::Usage, options.plan + ": was planned for \"" + name +
                                             "\", which is no preset; name its file with "
                                             "--cluster FILE"};
  auto cluster = planner::loadCluster(name);
  if (!cluster)
    return cluster.error();
  if (!cluster->groups.empty())
    return Error{ErrorCode::Usage, name + ": has several kinds of nodes, and a step does not say "
                                          "which of them is slow; measure a plan for one kind"};
  auto prior = planner::runBy(*cluster, plan.cluster.executor.name);
  if (!prior)
    return prior.error();
  if (!(*prior == plan.cluster))
    return Error{ErrorCode::Usage, options.plan + ": was planned for another cluster than " + name +
                                       " is now; name its file with --cluster, or plan again"};
  return text;
}

static std::string intervalText(double seconds, double uncertainty) {
  return formatSeconds(seconds) + " (" + formatSeconds(seconds * (1 - uncertainty)) + " to " +
         formatSeconds(seconds * (1 + uncertainty)) + ")";
}

static std::string namesOf(const std::vector<std::string> &paths) {
  std::string names;
  for (const std::string &path : paths)
    names += (names.empty() ? "" : ", ") + path;
  return names;
}

Result<int> runFromRun(const FromRunOptions &options) {
  auto planText = readFile(options.plan, ErrorCode::Usage);
  if (!planText)
    return planText.error();
  auto plan = planner::readPlan(*planText, options.plan);
  if (!plan)
    return ofKind(Problem::BadPlan, plan.error());
  auto text = textOfCluster(options, *plan);
  if (!text)
    return text.error();
  std::vector<double> seconds;
  for (const std::string &path : options.logs) {
    auto steps = stepsOf(path, *plan);
    if (!steps)
      return steps.error();
    seconds.insert(seconds.end(), steps->begin(), steps->end());
  }

  const planner::Prediction &before = plan->prediction;
  const double uncertainty = plan->cluster.timeUncertainty;
  const planner::Measured update = planner::afterRun(seconds, before.stepSeconds, uncertainty);
  // The prediction has the factor of earlier runs already.
  const planner::Measured total{plan->cluster.timeFactor * update.timeFactor,
                                update.timeUncertainty};
  const double median = planner::medianOf(seconds);
  const std::string executor = plan->cluster.executor.name;
  const std::string steps =
      std::to_string(seconds.size()) + (seconds.size() == 1 ? " step" : " steps");
  const std::string written =
      planner::withMeasured(*text, executor, total,
                            {"Measured: tbc calibrate --from-run. " + steps + " of " +
                                 namesOf(options.logs) + ", median " + formatSeconds(median) + ",",
                             "predicted " + intervalText(before.stepSeconds, uncertainty) + "."});
  auto check = planner::parseCluster(written, options.output);
  if (!check)
    return Error{ErrorCode::Other, "the measurement makes no cluster: " + check.error().message};
  if (Status status = writeFile(options.output, written); !status)
    return status.error();
  if (options.output == "-")
    return 0;
  const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
  std::cout << planner::format("measured   %s, the median of %s (%s to %s)\n",
                               formatSeconds(median).c_str(), steps.c_str(),
                               formatSeconds(*low).c_str(), formatSeconds(*high).c_str())
            << "before     " << intervalText(before.stepSeconds, uncertainty)
            << planner::format(", time factor %.3g, \u00b1 %.0f %%\n", plan->cluster.timeFactor,
                               100 * uncertainty)
            << "after      "
            << intervalText(before.stepSeconds * update.timeFactor, update.timeUncertainty)
            << planner::format(", time factor %.3g, \u00b1 %.0f %%\n", total.timeFactor,
                               100 * update.timeUncertainty);
  if (median < before.lowSeconds || median > before.highSeconds)
    std::cout << "The measurement is outside of the interval before. Check that the run was of "
              << options.plan << ", on " << plan->cluster.name << ", undisturbed.\n";
  std::cout << "wrote " << options.output << ": [measured." << executor
            << "]; next: tbc plan --cluster " << options.output
            << (executor == planner::ownExecutor ? "" : " --executor " + executor) << "\n";
  return 0;
}

} // namespace tbc::cli
