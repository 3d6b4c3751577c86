//===- Infeasible.h - Why no plan fits ------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_INFEASIBLE_H
#define TBC_PLANNER_SEARCH_INFEASIBLE_H

#include "planner/search/Explore.h"

namespace tbc::planner {

/// Explains why no plan fits, and suggests changes. `exploration` has no fitting exact candidate.
Error explainInfeasible(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                        const Pins &pins, const Exploration &exploration);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_INFEASIBLE_H
