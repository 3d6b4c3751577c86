//===- AnnotatePlan.h - A plan's decisions on the IR -----------------------===//

#ifndef TBC_PASSES_PLAN_ANNOTATEPLAN_H
#define TBC_PASSES_PLAN_ANNOTATEPLAN_H

#include "ir/StepGraph.h"
#include "planner/reshard/Overlap.h"
#include "runtime/schedule/Schedule.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc {

/// A plan's decisions for one step, on the graph that extractStepGraph makes of its @train. The
/// driver makes it from plan.json; passes do not read plan files.
struct StepPlan {
  reshard::Mesh mesh;
  std::optional<schedule::ScheduleKind> schedule; // none without a pipeline
  std::vector<int> chunkStage;                    // empty: chunk s is on stage s
  std::vector<int> firstOps; // the first forward op of each chunk, ascending; the first is 0
  int64_t batch = 1;         // samples of a micro-batch over all data ranks
  int64_t globalBatch = 1;   // samples of a step
  int64_t microBatches = 1;
  std::vector<reshard::OpStrategy> strategies;        // one per op
  std::vector<reshard::ParameterPlan> parameterPlans; // one per parameter
  std::vector<bool> recomputed, offloaded;            // one per op
  bool offloadsStates = false;
  bool isZigzag = false;
  reshard::OverlapSettings overlap;
};

/// Writes `plan` as attributes (ir/Plan.h) on `module` and its @train, the function of graph
/// `step`. Replaces earlier attributes, and gives tbc.factor_size its batch sizes.
void annotatePlan(mlir::ModuleOp module, const StepGraph &step, const StepPlan &plan);

} // namespace tbc

#endif // TBC_PASSES_PLAN_ANNOTATEPLAN_H
