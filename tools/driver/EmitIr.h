//===- EmitIr.h - The IR of a plan, as text --------------------------------===//

#ifndef TBC_TOOLS_DRIVER_EMITIR_H
#define TBC_TOOLS_DRIVER_EMITIR_H

#include "passes/Pipelines.h"
#include "planner/plan/Plan.h"
#include "tools/driver/TrainingStep.h"

#include <string>

namespace tbc::driver {

/// Returns the step with the plan as attributes, after tbc-apply-plan. `isFolded` prints one of
/// several equal graph blocks, with their count in a comment, and cuts long constants. tbc-opt
/// reads only unfolded text. Errors: those of `planner::applyPlan`.
Result<std::string> annotatedText(const TrainingStep &step, const planner::Plan &plan,
                                  bool isFolded);

/// Runs the passes on the step with its plan. Calls `afterPass` with the module after each pass,
/// first after tbc-apply-plan. Errors: those of `planner::applyPlan`; Other with the diagnostics of
/// a pass.
Status runPasses(const TrainingStep &step, const planner::Plan &plan, const AfterPass &afterPass);

/// Returns the names of the passes of `runPasses`, in order.
std::vector<std::string> passNames();

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_EMITIR_H
