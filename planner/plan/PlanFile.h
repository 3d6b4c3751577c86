//===- PlanFile.h - plan.json ---------------------------------------------===//
//
// Canonical, versioned, editable by hand.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_PLAN_PLANFILE_H
#define TBC_PLANNER_PLAN_PLANFILE_H

#include "planner/plan/Plan.h"

#include <string>

namespace tbc::planner {

/// Returns the canonical text of plan.json: sorted keys, shortest numbers that read back equal,
/// final newline.
std::string writePlan(const Plan &plan);

/// Returns a cluster as canonical JSON, with the same keys as in a plan.
std::string writeCluster(const Cluster &cluster);

/// Reads plan.json. `source` names it in messages.
/// Errors: Usage with the key if the text is not JSON, is truncated or has another version. The
/// same if a key is unknown, missing, or has the wrong type or range, or if predictions contradict
/// each other (PlanCheck.h).
Result<Plan> readPlan(const std::string &text, const std::string &source);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PLANFILE_H
