//===- Context.h - MLIR contexts with the dialects of tbc ---------------------===//

#ifndef TBC_TOOLS_DRIVER_CONTEXT_H
#define TBC_TOOLS_DRIVER_CONTEXT_H

#include "planner/plan/Plan.h"
#include "tools/driver/TrainingStep.h"

#include <memory>
#include <string>

namespace tbc::driver {

/// Returns a context with the dialects of tbc. Single-threaded: functions are small and threads are
/// slow to start.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// A plan read from its file, and the model's step built with the plan's settings.
struct LoadedPlan {
  std::unique_ptr<mlir::MLIRContext> context;
  planner::Plan plan;
  std::unique_ptr<TrainingStep> step;
};

/// Loads a plan. `modelPath` overrides the path in the plan, which is relative to the plan's
/// folder. Errors: Usage for a plan that is malformed, of another version or for another model.
Result<LoadedPlan> loadPlan(const std::string &planPath, const std::string &planText,
                            const std::string &modelPath);

/// Builds the step of a plan's job, whose model is at `modelPath`. Errors: those of
/// buildTrainingStep.
Result<std::unique_ptr<TrainingStep>> stepOf(mlir::MLIRContext &context, const planner::Job &job,
                                             const std::string &modelPath);

/// Errors: Usage if another executor than tbc's Programs was planned for.
Status checkExecutor(const LoadedPlan &loaded, const std::string &planPath);

/// Recomputes a plan's predictions from its decisions and compares them with its file. Errors:
/// Usage, with the key and both values; those of `planner::applyPlan`.
Status checkPredictions(const LoadedPlan &loaded, const std::string &planPath);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_CONTEXT_H
