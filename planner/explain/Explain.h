//===- Explain.h - Details behind a plan ----------------------------------===//
//
// Plain C++. Derives everything from the plan and the model's graph, with the code that priced the
// plan.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_EXPLAIN_EXPLAIN_H
#define TBC_PLANNER_EXPLAIN_EXPLAIN_H

#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"
#include "planner/report/Report.h"
#include "planner/search/Search.h"

#include <string>

namespace tbc::planner {

/// A plan on the graph of its model, derived.
struct ExplainedPlan {
  const reshard::Graph &graph; // of the unchanged model
  const Plan &plan;
  PlannedStep step;
  reshard::Derivation derivation;
  reshard::Overlap overlap;
  Prediction prediction; // of the plan in its current form

  /// Errors: those of applyPlan.
  static Result<ExplainedPlan> make(const reshard::Graph &graph, const Plan &plan);
};

/// Reports per stage: every memory line, the op at the peak, and the largest tensors there.
Report explainMemory(const ExplainedPlan &plan);

/// Reports the collectives of a step by kind and axes, exposed and hidden, with their causes.
Report explainCommunication(const ExplainedPlan &plan);

/// Reports the kernels of a step on the stage that bounds it, by phase, kind and class, the dearest
/// first: launches, FLOPs, bytes and seconds as the plan prices them, their bound, and the
/// seconds at the roof. Those are max(FLOPs / peak, bytes / bandwidth) of the device, with no
/// efficiency and no launch. The seconds add up to the plan's kernels and update. Example: 96
/// matmuls of 12.1 ms, 8.7 ms at the roof, bound by flops.
Report explainKernels(const ExplainedPlan &plan);

/// Reports the layer table with every repeat on its own line.
Report explainLayers(const ExplainedPlan &plan);

/// Reports the tensors whose name, display name or op id matches `glob`: layout, shardings, bytes
/// of a rank, collectives, and the origin of each decision. Errors: Usage if there is no match,
/// with a suggestion.
Result<Report> explainTensor(const ExplainedPlan &plan, const std::string &glob);

/// Reports the cost of `condition` ("tp=8", "recompute=none"): the best plan of the same job with
/// it and with the other pins. A condition on an axis releases a pinned mesh. If the plan already
/// satisfies the condition, reports the best plan without it. An infeasible condition is a valid
/// answer. Errors: Usage for a malformed condition.
Result<Report> explainWhy(const ExplainedPlan &plan, const std::string &condition,
                          const Progress &progress = {});

/// Reports the differences between two plans in request, decisions and predictions; no rows if they
/// are equal.
Report explainDifferences(const Plan &plan, const Plan &other);

/// Reports all that a rank holds, computes and says, and to whom, from plan.json alone. Errors:
/// Usage for a rank that the plan does not have, or a layout of other decisions.
Result<Report> explainRank(const Plan &plan, int64_t rank);

/// Reports the decisions in the order in which they were made, each with its origin, and the best
/// other plan known that agrees with all decisions before it. Example: mesh fsdp=8 first; the best
/// plan with another mesh takes 3 ms more.
Report explainDecisions(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_EXPLAIN_EXPLAIN_H
