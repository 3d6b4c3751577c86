//===- PlanOptions.h - Flags of tbc plan ----------------------------------------===//

#ifndef TBC_TOOLS_TBC_PLANOPTIONS_H
#define TBC_TOOLS_TBC_PLANOPTIONS_H

#include "planner/core/Search.h"
#include "tools/tbc/ModelOptions.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::cli {

/// What is asked of one plan, as given.
struct PlanOptions {
  ModelOptions model;
  int64_t gpus = 0;
  std::optional<std::string> cluster;
  int64_t batch = 0;
  std::string mesh;
  std::string memoryLimit;
  int64_t microBatch = 0;
  int zero = -1;
  bool takesRisk = false;
  double tiePercent = 2;
  std::vector<std::string> pin, forbid;
  planner::Pins pins;
};

/// Adds the model, --gpus, --cluster, --batch and what pins decisions.
void addPlanOptions(CLI::App &command, PlanOptions &options);

/// Errors: Usage, naming the flag.
Result<planner::Pins> toPins(const PlanOptions &options);

/// The job that `options` ask for, of the model in `step`, which was built as `asked`. `modelPath`
/// as it shall stand in a plan.
planner::Job toJob(const PlanOptions &options, const driver::StepOptions &asked,
                   const driver::TrainingStep &step, const std::string &modelPath);
/// Devices and batch of `job`, whose sequence is known.
void setDevices(planner::Job &job, const PlanOptions &options);

/// tbc plan --job: plans every line of `path`, one JSON line each to stdout.
Result<int> runJobs(const std::string &path);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_PLANOPTIONS_H
