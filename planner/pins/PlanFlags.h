//===- PlanFlags.h - The decisions of a plan as flags of tbc plan ----------===//

#ifndef TBC_PLANNER_PINS_PLANFLAGS_H
#define TBC_PLANNER_PINS_PLANFLAGS_H

#include "planner/plan/Plan.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the flags that pin the decisions of `plan`, but for splits of ops and for ops that a
/// user recomputes, keeps or offloads one by one. With an equal job they give an equal mesh,
/// schedule and stages.
///
/// Example: {"--mesh", "pp=2,tp=2", "--zero", "0", .., "--pin", "h.1.ln=begin"}.
std::vector<std::string> flagsOf(const Plan &plan);

/// Returns a glob that matches `name` alone. Example: "a[0]" gives "a\\[0]".
std::string literalGlob(const std::string &name);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_PLANFLAGS_H
