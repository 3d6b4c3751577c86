//===- PlanOf.h - The plan of a candidate ---------------------------------===//

#ifndef TBC_PLANNER_SEARCH_PLANOF_H
#define TBC_PLANNER_SEARCH_PLANOF_H

#include "planner/search/CostTables.h"

namespace tbc::planner {

/// Returns the plan of `candidate`, which is scored, without predictions. Thread-safe.
Plan planOf(const CostTables &costs, const Candidate &candidate);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PLANOF_H
