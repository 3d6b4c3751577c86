//===- PlanCheck.h - Consistency of a plan's predictions ------------------===//

#ifndef TBC_PLANNER_PLAN_PLANCHECK_H
#define TBC_PLANNER_PLAN_PLANCHECK_H

#include "planner/plan/Plan.h"

namespace tbc::planner {

/// Returns the first contradiction among the predictions of `plan`, beginning with the key of
/// plan.json, or "". It checks that
/// - times and peaks lie in their intervals;
/// - the lines of some stage add up to the peak;
/// - the parts of the step add up to it;
/// - the step is not faster than the proven bound;
/// - the work of each chunk adds up to its seconds.
///
/// Example: "peak_bytes" edited to 1 gives `key "peak_bytes" is 1, outside of its interval of
/// 863000000 to 1720000000 (prediction.low_bytes, high_bytes)`.
std::string whyInconsistent(const Plan &plan);

/// Returns the verdict on memory that follows from the bytes of `prediction` and their limits.
MemoryVerdict memoryVerdict(const Prediction &prediction);

/// Returns why the predictions of `plan` are not those of its decisions, as far as the plan alone
/// tells, or "". It checks that
/// - the layout is that of the decisions (whyLayoutIsStale);
/// - the limit of memory follows from `memory_limit_bytes` and the cluster;
/// - the verdict follows from the limit.
std::string whyStale(const Plan &plan);

/// Compares the predictions and the layout in `plan` with those of its decisions. Returns the first
/// difference with both values, or "". Numbers may differ by rounding: 1 part in 10^9. A plan
/// without a layout, or without the seconds of its chunks, is compared without them.
std::string whyNotDerived(const Plan &plan, const Prediction &prediction, const Layout &layout);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PLANCHECK_H
