//===- Reasons.h - Why a plan is as it is ------------------------------------===//

#ifndef TBC_PLANNER_CORE_REASONS_H
#define TBC_PLANNER_CORE_REASONS_H

#include "planner/core/Explore.h"

#include <string>

namespace tbc::planner {

/// Adds to `plan`, the first of `exploration.exact`, what `exploration` says of it: its runners-up,
/// at most `pins.top` with itself, why each decision was taken, what keeps it from being faster,
/// and what it assumes.
void explainChoice(const Exploration &exploration, const reshard::Graph &graph, const Job &job,
                   const Pins &pins, Plan &plan);

/// What a ratio is above 1, "+5.5 %"; "+0.0 %" also for what is below by less than is shown.
std::string signedPercent(double ratio);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_REASONS_H
