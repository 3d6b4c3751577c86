//===- Search.h - The best plan for a job, with reasons and a bound --------===//
//
// Plain C++. Enumerates meshes, micro-batches, ZeRO modes, recomputation, schedules and stage cuts;
// places strategies by an exact solver; scores in closed form; re-evaluates the best few exactly.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_SEARCH_H
#define TBC_PLANNER_SEARCH_SEARCH_H

#include "planner/pins/Pins.h"
#include "planner/plan/Plan.h"
#include "planner/search/SearchCounts.h"

namespace tbc::planner {

struct SearchAnswer {
  Plan plan;
  SearchCounts counts;
};

/// Returns the fastest plan that fits; without one, the fastest tight plan; without either, the
/// reason.
///
/// Errors: Usage for an impossible mesh or contradictory pins (both are named). NoFeasiblePlan if
/// no plan fits: the missing resource and amount, the stage, and the cheapest changes that make a
/// plan fit, each of them tested.
Result<SearchAnswer> search(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, const Progress &progress = {});

/// Returns the cost of pinned decisions: the fastest plan that fits, else the fastest tight plan,
/// else the plan nearest to fitting. No runners-up, reasons or bound. Errors: Usage as in search;
/// NoFeasiblePlan if the graph has too few ops for the pins.
Result<Plan> costOf(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                    const Pins &pins);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SEARCH_H
