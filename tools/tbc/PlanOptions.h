//===- PlanOptions.h - Flags of tbc plan ----------------------------------------===//

#ifndef TBC_TOOLS_TBC_PLANOPTIONS_H
#define TBC_TOOLS_TBC_PLANOPTIONS_H

#include "planner/search/Search.h"
#include "tools/tbc/ModelOptions.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::cli {

/// The flags of one plan, as given.
struct PlanOptions {
  ModelOptions model;
  int64_t gpus = 0;
  std::optional<std::string> cluster;
  std::string executor = planner::ownExecutor;
  int64_t batch = 0;
  std::string mesh;
  std::string memoryLimit;
  int64_t microBatch = 0;
  int zero = -1;
  bool takesRisk = false;
  bool ignoresAnnotations = false;
  double tiePercent = 2;
  double expertImbalance = 1;
  std::string matmulPrecision = name(planner::MatmulPrecision::Own);
  std::vector<std::string> pin, forbid;
  planner::Pins pins;
};

/// Adds the model, --gpus, --cluster, --batch and the flags that pin decisions.
void addPlanOptions(CLI::App &command, PlanOptions &options);

/// Converts the flags. Errors: Usage, naming the flag.
Result<planner::Pins> toPins(const PlanOptions &options);

/// Returns the job of `options` for the model in `step`, which was built from `asked`. `modelPath`:
/// the path stored in the plan.
planner::Job toJob(const PlanOptions &options, const driver::StepOptions &asked,
                   const driver::TrainingStep &step, const std::string &modelPath);
/// Sets devices, batch and balance of `job`, given its sequence length.
void setDevices(planner::Job &job, const PlanOptions &options);
/// Error (Usage): --expert-imbalance for a model without experts that it concerns.
Status checkExperts(const PlanOptions &options, const reshard::Graph &graph);

/// tbc plan --job: plans every line of `path`, one JSON line each to stdout.
Result<int> runJobs(const std::string &path);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_PLANOPTIONS_H
