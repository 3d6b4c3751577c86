//===- RandomPlan.h - Random valid plans ----------------------------------===//
//
// Plans that the planner would never choose, but that are legal: any strategy of any op, ZeRO per
// parameter over any of its data axes, stages cut anywhere, chunks placed anywhere under any
// schedule, any forward op recomputed.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_RANDOMPLAN_H
#define TBC_TESTS_TOOLS_RANDOMPLAN_H

#include "planner/plan/Plan.h"
#include "tools/driver/TrainingStep.h"

#include <cstdint>

namespace tbc::test {

/// Returns `plan` with its mesh, batch and accumulation; all other decisions are drawn. `graph`: of
/// its model, at the plan's batch. The same seed gives the same plan.
planner::Plan withRandomDecisions(planner::Plan plan, const reshard::Graph &graph, uint64_t seed);

/// Returns a plan for `step` on a mesh of at most `maxRanks` ranks, with axes of 2 to 4.
/// Micro-batches have 1 or 2 samples. A step has 1 to 3 of them, or as many as the schedule needs.
planner::Plan randomPlan(const driver::TrainingStep &step, int64_t maxRanks, uint64_t seed);

/// Returns a one-line description of a plan, for messages.
std::string describe(const planner::Plan &plan);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_RANDOMPLAN_H
