//===- LayoutOf.h - The layout that a plan's decisions give ---------------===//
//
// Plain C++. Everything is read off the derived step, by the code that prices and emits it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_LAYOUT_LAYOUTOF_H
#define TBC_PLANNER_LAYOUT_LAYOUTOF_H

#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"

namespace tbc::planner {

/// Returns the layout of `plan` on `graph`, the graph of its model, from scratch. Errors: those of
/// applyPlan.
Result<Layout> layoutOf(const reshard::Graph &graph, const Plan &plan);
/// The same, for the applied plan.
Layout layoutOf(const reshard::Graph &graph, const PlannedStep &step, const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_LAYOUT_LAYOUTOF_H
