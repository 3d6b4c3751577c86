//===- Explain.h - What is behind a plan -----------------------------------===//
//
// Plain C++. Everything is derived again from the plan and the model's graph, by the code that
// priced the plan.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_EXPLAIN_H
#define TBC_PLANNER_CORE_EXPLAIN_H

#include "planner/core/Plan.h"
#include "planner/core/Report.h"
#include "planner/core/Search.h"

#include <string>

namespace tbc::planner {

/// A plan on the graph of its model, derived.
struct ExplainedPlan {
  const reshard::Graph &graph; // as the model has it
  const Plan &plan;
  PlannedStep step;
  reshard::Derivation derivation;
  reshard::Overlap overlap;
  Prediction prediction; // of the plan as it stands

  /// Errors: as of applyPlan.
  static Result<ExplainedPlan> make(const reshard::Graph &graph, const Plan &plan);
};

/// Per stage: every line, the op at which most is live, and the largest tensors there.
Report explainMemory(const ExplainedPlan &plan);

/// The collectives of a step by kind and axes, exposed and hidden, and what causes them.
Report explainCommunication(const ExplainedPlan &plan);

/// The layer table with every repeat on a line of its own.
Report explainLayers(const ExplainedPlan &plan);

/// The tensors whose name, display name or op id `glob` matches: layout, shardings, bytes of a
/// rank, collectives, and who decided that.
/// Errors: Usage where there is none, with a suggestion.
Result<Report> explainTensor(const ExplainedPlan &plan, const std::string &glob);

/// What `condition` ("tp=8", "recompute=none") costs: the best plan of the same job with it, and
/// with what else was pinned; who asks for an axis lets go of a pinned mesh. Where the plan has it
/// already: the best one without it. A plan that cannot be had is an answer too. Errors: Usage for
/// a condition that is malformed.
Result<Report> explainWhy(const ExplainedPlan &plan, const std::string &condition,
                          const Progress &progress = {});

/// What differs between two plans, in what was asked, decided and predicted; no rows if nothing
/// does.
Report explainDifferences(const Plan &plan, const Plan &other);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_EXPLAIN_H
