//===- EmitIr.h - The IR of a plan, as text --------------------------------===//

#ifndef TBC_TOOLS_DRIVER_EMITIR_H
#define TBC_TOOLS_DRIVER_EMITIR_H

#include "passes/Pipelines.h"
#include "planner/core/Plan.h"
#include "tools/driver/TrainingStep.h"

#include <string>

namespace tbc::driver {

/// The step with the plan as attributes, after tbc-apply-plan. tbc-opt reads the text, unless it is
/// folded: then one of several equal graph blocks stands for all, a comment says how many there
/// are, and long constants are cut.
/// Errors: as of planner::applyPlan.
Result<std::string> annotatedText(const TrainingStep &step, const planner::Plan &plan,
                                  bool isFolded);

/// Runs the passes on the step with its plan and hands out the module after each, the first after
/// tbc-apply-plan.
/// Errors: as of planner::applyPlan; Other with the diagnostics of a pass.
Status runPasses(const TrainingStep &step, const planner::Plan &plan, const AfterPass &afterPass);

/// The passes that runPasses tells of, in order.
std::vector<std::string> passNames();

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_EMITIR_H
