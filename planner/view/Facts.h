//===- Facts.h - The numbers behind a plan, as text ------------------------===//

#ifndef TBC_PLANNER_VIEW_FACTS_H
#define TBC_PLANNER_VIEW_FACTS_H

#include "planner/view/PlanView.h"

namespace tbc::planner {

/// Returns `amount` per second. Example: 3.62e11 and "B" give "362 GB/s".
std::string rateText(double amount, const char *unit);

/// Returns the job: model, batch, optimizer, precision, bindings, settings.
std::vector<FactGroup> jobFacts(const Plan &plan);

/// Returns every number of a cluster with its unit; one group per topic, and for each kind of node.
std::vector<FactGroup> clusterFacts(const Cluster &cluster);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_FACTS_H
