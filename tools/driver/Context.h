//===- Context.h - MLIR contexts with what tbc needs loaded -------------------===//

#ifndef TBC_TOOLS_DRIVER_CONTEXT_H
#define TBC_TOOLS_DRIVER_CONTEXT_H

#include "planner/core/Plan.h"
#include "tools/driver/TrainingStep.h"

#include <memory>
#include <string>

namespace tbc::driver {

/// A context with the dialects of tbc, single-threaded: functions are small and starting threads is
/// not.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// A plan read from its file, and the model's step built as the plan recorded it.
struct LoadedPlan {
  std::unique_ptr<mlir::MLIRContext> context;
  planner::Plan plan;
  std::unique_ptr<TrainingStep> step;
};

/// `modelPath` overrides the path in the plan, which is relative to the plan's folder.
/// Errors: Usage for a plan that is malformed, of another version or for another model.
Result<LoadedPlan> loadPlan(const std::string &planPath, const std::string &planText,
                            const std::string &modelPath);

/// Derives the predictions of a plan from its decisions and compares those in its file. Errors:
/// Usage, naming the key and both values; as of planner::applyPlan.
Status checkPredictions(const LoadedPlan &loaded, const std::string &planPath);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_CONTEXT_H
