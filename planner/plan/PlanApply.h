//===- PlanApply.h - A plan applied to the graph of its model -------------===//

#ifndef TBC_PLANNER_PLAN_PLANAPPLY_H
#define TBC_PLANNER_PLAN_PLANAPPLY_H

#include "planner/plan/Plan.h"
#include "planner/reshard/Rebatch.h"

#include <vector>

namespace tbc::planner {

/// A plan applied to the graph of its model: the complete input of `derive`.
struct PlannedStep {
  /// Rebatched to microBatch * dataRanks, with chunks set. Backward is split into dgrad and wgrad
  /// if the schedule requires it. Recomputed ops are cloned into the backward phase.
  reshard::Graph graph;
  reshard::Assignment assignment;
  /// The ranks of a sequence have its parts in zigzag order.
  bool isZigzag = false;
  /// Indices of the recomputed forward ops, ascending, in the input graph. `graph` has the same
  /// indices.
  std::vector<int> reexecuted;
  /// Per op of `graph`: the forward op of a clone, else -1.
  std::vector<int> cloneOf;
  bool isRecomputed(int op) const { return cloneOf[op] >= 0; }
};

/// Errors: Usage if the plan names an op, parameter, axis or loop that is not in the graph, or a
/// split that the loop's size does not allow.
Result<PlannedStep> applyPlan(const reshard::Graph &graph, const Plan &plan);

using reshard::withBatch;

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PLANAPPLY_H
