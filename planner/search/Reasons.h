//===- Reasons.h - Reasons for the decisions of a plan --------------------===//

#ifndef TBC_PLANNER_SEARCH_REASONS_H
#define TBC_PLANNER_SEARCH_REASONS_H

#include "planner/search/Explore.h"

#include <string>

namespace tbc::planner {

/// Completes `plan`, the first of `exploration.exact`, from `exploration`: at most `pins.top`
/// runners-up with itself, the reason for each decision, the binding constraint, and the
/// assumptions.
void explainChoice(const Exploration &exploration, const reshard::Graph &graph, const Job &job,
                   const Pins &pins, Plan &plan);

/// Returns the part of the step of `plan` that takes longest. Example: "kernels: 96 % of the step".
std::string longestPart(const Plan &plan);

/// Returns the excess of a ratio over 1. Example: 1.055 gives "+5.5 %". A ratio slightly below 1
/// that rounds to 0 gives "+0.0 %".
std::string signedPercent(double ratio);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_REASONS_H
