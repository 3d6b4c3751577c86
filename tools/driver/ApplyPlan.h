//===- ApplyPlan.h - Annotate the IR of a step with a plan -----------------===//

#ifndef TBC_TOOLS_DRIVER_APPLYPLAN_H
#define TBC_TOOLS_DRIVER_APPLYPLAN_H

#include "passes/plan/AnnotatePlan.h"
#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"
#include "tools/driver/TrainingStep.h"

#include "mlir/Pass/Pass.h"

namespace tbc::driver {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "tools/driver/Passes.h.inc"

/// Converts `plan` to the form of the passes, on the graph of its step. `planned` is the plan
/// applied to that graph.
StepPlan toStepPlan(const planner::Plan &plan, const planner::PlannedStep &planned);

/// Returns a copy of the step's module with `plan` as attributes: the result of tbc-apply-plan.
mlir::OwningOpRef<mlir::ModuleOp> annotatedModule(const TrainingStep &step,
                                                  const planner::Plan &plan,
                                                  const planner::PlannedStep &planned);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_APPLYPLAN_H
