//===- PlanSupport.h - Plans for the small models, for end-to-end tests ---===//

#ifndef TBC_TESTS_TOOLS_PLANSUPPORT_H
#define TBC_TESTS_TOOLS_PLANSUPPORT_H

#include "planner/search/Search.h"
#include "tools/driver/Context.h"
#include "tools/driver/Verify.h"

#include <memory>
#include <optional>
#include <string>

namespace tbc::test {

/// The step of a model, with its context.
struct Model {
  std::unique_ptr<mlir::MLIRContext> context;
  std::unique_ptr<driver::TrainingStep> step;
};

/// Loads models/NAME.onnx, with sequences of `tokens` if it has any. Aborts with a message if it is
/// refused. The input `kept` stays an input; else it would be held at a constant.
Model loadModel(const std::string &name, const std::string &optimizer = "adamw",
                const std::map<std::string, double> &settings = {}, const std::string &kept = "",
                const std::string &precision = "f32", int64_t tokens = 8);

/// The pins of a plan. Sizes are small: 8 samples per step.
struct PlanRequest {
  std::string mesh; // e.g. "dp=4"; its product is the number of devices
  std::string strategy = "auto";
  std::string schedule = "";
  std::string recompute = "none";
  int64_t microBatch = 1;
  int64_t globalBatch = 8;
  int64_t virtualStages = 0; // 0: open
  std::string placement = "";
  std::string context = "";
  std::string sequenceOrder = "";
  std::string offload = "none";
  std::string bucketSize = "auto";
  std::string prefetch = "auto";
  std::string gatherSize = "auto";
  std::optional<int> zero = std::nullopt; // unset: as the mesh and the strategy leave it
  std::string begin = "";                 // the op where the second of two stages begins
};

/// Returns the planner's plan for the preset `h100-sxm`.
Result<planner::Plan> makePlan(const Model &model, const PlanRequest &request);

/// Compiles `plan` for GPUs of sm_80.
Result<driver::CompiledPlan> compileForGpus(const Model &model, const planner::Plan &plan);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_PLANSUPPORT_H
