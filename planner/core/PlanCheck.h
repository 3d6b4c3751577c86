//===- PlanCheck.h - Whether a plan's predictions are its own --------------===//

#ifndef TBC_PLANNER_CORE_PLANCHECK_H
#define TBC_PLANNER_CORE_PLANCHECK_H

#include "planner/core/Plan.h"

namespace tbc::planner {

/// Why the predictions of `plan` contradict each other, beginning with the key of plan.json, or "":
/// a time or a peak outside of its interval, a peak that no stage's lines add up to, parts of the
/// step that do not add up to it, a step faster than the proven bound.
///
/// Example: "peak_bytes" edited to 1 gives `key "peak_bytes" is 1, outside of its interval of
/// 863000000 to 1720000000 (prediction.low_bytes, high_bytes)`.
std::string whyInconsistent(const Plan &plan);

/// The first prediction in `plan` that is not what `derived`, the prediction for its decisions,
/// says, with both values, or "". Numbers may differ by a rounding: 1 part in 10^9.
std::string whyNotDerived(const Plan &plan, const Prediction &derived);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PLANCHECK_H
