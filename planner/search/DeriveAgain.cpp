//===- DeriveAgain.cpp - The derived keys of an edited plan ------------------===//

#include "planner/search/DeriveAgain.h"
#include "planner/cost/Buckets.h"
#include "planner/layout/LayoutOf.h"
#include "planner/plan/Describe.h"
#include "planner/plan/PlanApply.h"
#include "planner/predict/Evaluate.h"
#include "planner/report/BlockNames.h"
#include "planner/report/Blocks.h"
#include "planner/report/LowMfu.h"
#include "planner/report/Unsplit.h"
#include "planner/search/Reasons.h"

#include <algorithm>
#include <functional>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the value of a reason's decision in `plan`, or `otherwise` for other reasons (pins).
static std::string valueOf(const Plan &plan, const std::string &decision,
                           const std::string &otherwise) {
  const ParameterDecision &data = plan.parameterDefault;
  const std::map<std::string, std::function<std::string()>> values = {
      {"mesh", [&] { return toString(plan.mesh); }},
      {"zero", [&] { return zeroName(data.zero, data.keepGathered); }},
      {"context", [&] { return std::string(name(plan.context)); }},
      {"micro-batch", [&] { return std::to_string(plan.microBatch); }},
      {"recompute", [&] { return toString(plan.recompute); }},
      {"offload", [&] { return offloadText(plan.offload); }},
      {"schedule", [&] { return scheduleText(plan); }},
      {"bucket-size", [&] { return bucketText(plan.overlap.bucketBytes); }},
      {"gather-size", [&] { return bucketText(plan.overlap.gatherBytes); }},
      {"prefetch", [&] { return std::to_string(plan.overlap.prefetch); }},
      {"strategies", [&] { return std::to_string(plan.ops.size()) + " kinds of split"; }}};
  const auto found = values.find(decision);
  return found == values.end() ? otherwise : found->second();
}

/// Replaces what the search said of the plan before it was edited.
static void compareAgain(const PlannedStep &step, Plan &plan) {
  for (Reason &reason : plan.reasons) {
    const std::string value = valueOf(plan, reason.decision, reason.value);
    if (value != reason.value)
      reason = {reason.decision, value, Origin::Pinned, "edited by hand"};
    else if (reason.origin != Origin::Pinned)
      reason.text = "as it was before the plan was edited";
  }
  for (Alternative &other : plan.alternatives)
    if (other.memory != MemoryVerdict::DoesNotFit)
      other.note = signedPercent(other.stepSeconds / plan.prediction.stepSeconds);
  plan.bindingConstraint = longestPart(plan);
  plan.search = SearchSample();
  auto comparesTimes = [](const std::string &line) {
    return line.rfind("the simplest plan within ", 0) == 0;
  };
  plan.assumptions.erase(
      std::remove_if(plan.assumptions.begin(), plan.assumptions.end(), comparesTimes),
      plan.assumptions.end());
  plan.warnings = unsplitWork(step);
  if (std::string warning = lowMfuWarning(plan); !warning.empty())
    plan.warnings.insert(plan.warnings.begin(), std::move(warning));
}

Status deriveAgain(const Graph &graph, Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  const bool isEdited =
      !plan.layout.isEmpty() && plan.layout.decisions != decisionsFingerprint(plan);
  plan.prediction = predictStep(*step, plan);
  plan.layout = layoutOf(graph, *step, plan);
  plan.blocks = blockRows(graph, *step, plan);
  plan.stageNames = stageNames(graph, plan.job, plan.stages);
  // The bound covers all plans of the job. An edited job may beat it, so the bound is dropped.
  if (plan.lowerBoundSeconds > plan.prediction.stepSeconds)
    plan.lowerBoundSeconds = 0;
  if (isEdited)
    compareAgain(*step, plan);
  return Status::ok();
}

} // namespace tbc::planner
