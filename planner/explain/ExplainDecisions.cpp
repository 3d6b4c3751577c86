//===- ExplainDecisions.cpp - Decisions in order, and their rivals ---------===//

#include "planner/explain/Explain.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanNames.h"

#include <functional>

namespace tbc::planner {

namespace {

/// A decision that alternatives of plan.json have too.
struct Comparison {
  const char *decision; // as in Reason
  std::function<bool(const Alternative &)> isEqual;
};

} // namespace

/// Returns the comparisons in the order of the decisions.
static std::vector<Comparison> comparisonsOf(const Plan &plan) {
  return {
      {"mesh", [&](const Alternative &o) { return o.mesh == plan.mesh; }},
      {"zero", [&](const Alternative &o) { return o.data == plan.parameterDefault; }},
      {"context", [&](const Alternative &o) { return o.context == plan.context; }},
      {"micro-batch", [&](const Alternative &o) { return o.microBatch == plan.microBatch; }},
      {"recompute",
       [&](const Alternative &o) { return toString(o.recompute) == toString(plan.recompute); }},
      {"offload",
       [&](const Alternative &o) { return offloadText(o.offload) == offloadText(plan.offload); }},
      {"schedule",
       [&](const Alternative &o) {
         return o.schedule == plan.schedule && o.chunkStage == plan.chunkStage;
       }},
  };
}

/// Returns the fastest alternative that differs in `decision` and in no decision before it, those
/// that fit first; nullptr without one.
static const Alternative *bestOther(const Plan &plan, const std::string &decision) {
  const Alternative *best = nullptr;
  auto isBetter = [&](const Alternative &other) {
    const bool fits = other.memory == MemoryVerdict::Fits;
    return !best || fits > (best->memory == MemoryVerdict::Fits) ||
           (fits == (best->memory == MemoryVerdict::Fits) && other.stepSeconds < best->stepSeconds);
  };
  for (const Alternative &other : plan.alternatives)
    for (const Comparison &comparison : comparisonsOf(plan)) {
      if (decision == comparison.decision) {
        if (!comparison.isEqual(other) && isBetter(other))
          best = &other;
        break;
      }
      if (!comparison.isEqual(other))
        break;
    }
  return best;
}

Report explainDecisions(const Plan &plan) {
  Table table{"decisions",
              "decisions in their order, and the best other plan of plan.json that agrees before",
              {{"decision", "decision"},
               {"value", "value"},
               {"origin", "origin"},
               {"other", "best other plan"},
               {"other_time", "its step"},
               {"other_memory", "its memory"},
               {"why", "why"}},
              {},
              "a dash: plan.json keeps no plan that differs first in this decision"};
  for (const Reason &reason : plan.reasons) {
    const Alternative *other =
        reason.origin == Origin::Pinned ? nullptr : bestOther(plan, reason.decision);
    table.rows.push_back({Cell::of(reason.decision), Cell::of(reason.value),
                          Cell::of(name(reason.origin)), Cell::of(other ? describe(*other) : "-"),
                          other ? Cell::seconds(other->stepSeconds) : Cell::of("-"),
                          other ? Cell::bytes(double(other->peakBytes)) : Cell::of("-"),
                          Cell::of(reason.text)});
  }
  Report report;
  report.facts.push_back({"step_seconds", "step", Cell::seconds(plan.prediction.stepSeconds)});
  report.facts.push_back({"peak_bytes", "memory", Cell::bytes(double(plan.prediction.peakBytes))});
  report.tables = {table};
  return report;
}

} // namespace tbc::planner
