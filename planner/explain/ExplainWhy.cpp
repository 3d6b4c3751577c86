//===- ExplainWhy.cpp - Cost of another decision --------------------------===//

#include "planner/explain/Explain.h"
#include "planner/pins/Conditions.h"
#include "planner/plan/Describe.h"
#include "planner/report/Summary.h"
#include "planner/search/Explore.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <cmath>

namespace tbc::planner {

/// Returns the user's pins of `plan`, without those about the asked decisions. A condition on an
/// axis also releases the mesh and the way to shard. Errors: those of pinsOf().
static Result<Pins> keptPins(const Plan &plan, const std::vector<Condition> &asked) {
  auto isAsked = [&](const std::string &decision) {
    return std::any_of(asked.begin(), asked.end(),
                       [&](const Condition &c) { return c.decision == decision; });
  };
  const std::vector<std::string> &axes = axisNames();
  bool asksForAxis = std::any_of(axes.begin(), axes.end(), isAsked);
  auto isAxis = [&](const std::string &decision) {
    return std::find(axes.begin(), axes.end(), decision) != axes.end();
  };
  Result<Pins> kept = pinsOf(plan);
  if (!kept)
    return kept.error();
  auto isOver = [&](const Condition &c) {
    return isAsked(c.decision) || (asksForAxis && isAxis(c.decision));
  };
  auto &conditions = kept->conditions;
  conditions.erase(std::remove_if(conditions.begin(), conditions.end(), isOver), conditions.end());
  auto keep = [&](const std::string &decision, const std::string &value) {
    bool isKnown = std::any_of(conditions.begin(), conditions.end(), [&](const Condition &c) {
      return c.decision == decision && !c.isForbidden;
    });
    if (!isAsked(decision) && !isKnown)
      conditions.push_back({decision, value});
  };
  for (const Reason &reason : plan.reasons) {
    if (reason.origin != Origin::Pinned)
      continue;
    if (reason.decision == "mesh" && !asksForAxis)
      for (auto [axis, size] : plan.mesh.axes())
        keep(axis, std::to_string(size));
    else if (reason.decision == "zero" && !asksForAxis)
      keep("zero", zeroWord({plan.parameterDefault.zero, plan.parameterDefault.keepGathered}));
    else if (reason.decision == "micro-batch")
      keep("micro-batch", std::to_string(plan.microBatch));
    else if (reason.decision == "recompute")
      keep("recompute", name(plan.recompute.mode));
    else if (reason.decision == "schedule" && plan.mesh.pp > 1 && !asksForAxis)
      keep("schedule", scheduleWord(plan.schedule));
  }
  return kept;
}

/// Says how long a step takes that takes `ratio` times as long. Example: 1.055 gives "takes 5.5 %
/// longer", 0.988 gives "takes 1.2 % less".
static std::string durationText(double ratio) {
  constexpr double leastShown = 5e-4; // half of the last digit
  if (std::abs(ratio - 1) < leastShown)
    return "takes as long";
  return format("takes %.1f %% %s", 100 * std::abs(ratio - 1), ratio > 1 ? "longer" : "less");
}

/// Compares step times and peaks by their parts.
static Table comparison(const Prediction &plan, const Prediction &other) {
  Table table{"parts",
              "where the difference is",
              {{"part", "part"},
               {"plan", "this plan"},
               {"other", "the other"},
               {"difference", "difference"}},
              {},
              "time of one step on its slowest rank; memory of the fullest stage"};
  auto add = [&](const char *name, double a, double b) {
    if (a != 0 || b != 0)
      table.rows.push_back(
          {Cell::of(name), Cell::seconds(a), Cell::seconds(b), Cell::seconds(b - a)});
  };
  for (const TimeRow &row : timeRows())
    add(row.name, plan.time.*row.seconds, other.time.*row.seconds);
  add("step", plan.time.total(), other.time.total());
  auto fullest = [](const Prediction &p) -> const StageMemory & {
    return *std::max_element(p.stages.begin(), p.stages.end(), [](const auto &a, const auto &b) {
      return a.totalBytes() < b.totalBytes();
    });
  };
  const StageMemory &a = fullest(plan), &b = fullest(other);
  for (size_t i = 0; i < a.lines.size() && i < b.lines.size(); ++i)
    if (a.lines[i].bytes > 0 || b.lines[i].bytes > 0)
      table.rows.push_back({Cell::of(a.lines[i].name), Cell::bytes(double(a.lines[i].bytes)),
                            Cell::bytes(double(b.lines[i].bytes)),
                            Cell::bytes(double(b.lines[i].bytes - a.lines[i].bytes))});
  return table;
}

Result<Report> explainWhy(const ExplainedPlan &explained, const std::string &condition,
                          const Progress &progress) {
  Result<std::vector<Condition>> conditions = parseConditions(condition);
  if (!conditions)
    return conditions.error();
  const Plan &plan = explained.plan;
  bool hasAll = std::all_of(conditions->begin(), conditions->end(),
                            [&](const Condition &c) { return c.isIn(plan); });
  if (hasAll && conditions->size() > 1)
    return Error{ErrorCode::Usage, "--why " + condition +
                                       ": the plan is like that already; ask for one of them at a "
                                       "time to see what the best plan without it loses"};
  for (Condition &c : *conditions)
    c.isForbidden = hasAll;
  Result<Pins> kept = keptPins(plan, *conditions);
  if (!kept)
    return kept.error();
  Pins pins = *kept;
  pins.conditions.insert(pins.conditions.begin(), conditions->begin(), conditions->end());
  std::string keptText = toString(kept->conditions);
  for (const OpPin &pin : kept->ops)
    keptText += (keptText.empty() ? "" : " and ") + toString(pin);
  if (plan.memoryLimitBytes > 0)
    pins.memoryLimitBytes = plan.memoryLimitBytes;

  Report report;
  auto fact = [&](const char *key, const char *label, Cell cell) {
    report.facts.push_back({key, label, std::move(cell)});
  };
  std::string question = (hasAll ? "without " : "with ") + condition;
  fact("question", "the best plan",
       Cell::of(question + (keptText.empty() ? "" : ", as pinned " + keptText) +
                ", everything else open"));
  fact("plan", "this plan", Cell::of(describe(plan)));
  fact("plan_seconds", "  step", Cell::seconds(explained.prediction.stepSeconds));
  fact("plan_bytes", "  peak", Cell::bytes(double(explained.prediction.peakBytes)));
  Result<SearchAnswer> answer = search(explained.graph, plan.job, plan.cluster, pins, progress);
  if (!answer) {
    bool isShort = answer.error().code == ErrorCode::NoFeasiblePlan;
    if (!isShort && answer.error().code != ErrorCode::Usage)
      return answer.error();
    fact("possible", "possible", Cell::of("no"));
    fact("reason", "", Cell::of(answer.error().message));
    return report;
  }
  const Prediction &other = answer->plan.prediction;
  double ratio = other.stepSeconds / explained.prediction.stepSeconds;
  fact("other", "the other", Cell::of(describe(answer->plan)));
  fact("other_seconds", "  step", Cell::seconds(other.stepSeconds));
  fact("other_bytes", "  peak", Cell::bytes(double(other.peakBytes)));
  bool isTie = other.lowSeconds <= explained.prediction.highSeconds && ratio < 1.02 && ratio > 0.98;
  fact("possible", "possible", Cell::of("yes"));
  fact("verdict", "verdict",
       Cell::of(question + ", a step " + durationText(ratio) + (isTie ? ": a tie" : "") +
                (ratio < 0.98 ? ", so what is pinned or was edited in this plan costs that" : "")));
  report.tables.push_back(comparison(explained.prediction, other));
  return report;
}

} // namespace tbc::planner
