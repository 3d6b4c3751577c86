//===- Runnable.h - What an executor cannot run of a plan -----------------===//

#ifndef TBC_PLANNER_PINS_RUNNABLE_H
#define TBC_PLANNER_PINS_RUNNABLE_H

#include "planner/plan/Plan.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the decisions of `plan` that its executor does not run (RunnablePlans), as text. A
/// search makes none of them, so they are pinned. Example: {"tp=2", "zero-bubble"} for deepspeed.
std::vector<std::string> notRunnable(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_RUNNABLE_H
