//===- Search.cpp - The best plan for a job, with reasons and a bound ------===//

#include "planner/core/Search.h"
#include "planner/core/DeriveBest.h"
#include "planner/core/Evaluate.h"
#include "planner/core/Explore.h"
#include "planner/core/Reasons.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

std::string zeroName(int zero, bool keepGathered) {
  if (zero == 0)
    return "no ZeRO";
  return keepGathered ? "SHARD_GRAD_OP" : "ZeRO-" + std::to_string(zero);
}

std::string betweenOpsName(const MeshShape &mesh) {
  std::string names;
  for (auto [name, size] : {std::pair("tp", mesh.tp), {"cp", mesh.cp}, {"ep", mesh.ep}})
    if (size > 1)
      names += (names.empty() ? "" : " and ") + std::string(name);
  return names.empty() ? "communication between ops" : names + " communication";
}

std::string describe(const Plan &plan) {
  std::string text = toString(plan.mesh);
  if (plan.mesh.cp > 1)
    text += std::string(", ") + name(plan.context) + (plan.zigzag ? " zigzag" : "");
  if (plan.mesh.tokenRanks() > 1)
    text += ", " + zeroName(plan.parameterDefault.zero, plan.parameterDefault.keepGathered);
  text += ", micro-batch " + std::to_string(plan.microBatch) + " x " +
          std::to_string(plan.accumulation);
  if (plan.mesh.pp > 1)
    text += ", " + scheduleText(plan);
  text += ", recompute " + plan.recompute;
  if (!plan.offload.isNone())
    text += ", offload " + offloadText(plan.offload);
  return text;
}

static bool hasFit(const Result<Exploration> &exploration) {
  return exploration && !exploration->exact.empty() &&
         exploration->exact.front().plan.prediction.fits;
}

/// As explore. Where nothing fits in a small graph, whose single tensors count, also without the
/// ops that run again for their speed alone: what they read is kept, which may be more than what
/// they make.
static Result<Exploration> exploreKept(const Graph &graph, const Job &job, const Cluster &cluster,
                                       const Pins &pins, int top, const Progress &progress = {}) {
  Result<Exploration> exploration = explore(graph, job, cluster, pins, top, progress);
  if (!exploration || hasFit(exploration) || pins.recompute != "auto" || !isSmallGraph(graph))
    return exploration;
  Pins plain = pins;
  plain.recompute = "none";
  Result<Exploration> tried = explore(graph, job, cluster, plain, top);
  if (tried)
    exploration->counts += tried->counts;
  if (!hasFit(tried))
    return exploration;
  tried->counts = exploration->counts;
  tried->lowerBoundSeconds = exploration->lowerBoundSeconds; // of all plans
  return tried;
}

/// The same; where --offload is auto and nothing fits otherwise, with what may lie on the host
/// there, whichever is fastest.
static Result<Exploration> exploreOffload(const Graph &graph, const Job &job,
                                          const Cluster &cluster, const Pins &pins, int top,
                                          const Progress &progress = {}) {
  Result<Exploration> exploration = exploreKept(graph, job, cluster, pins, top, progress);
  if (pins.offload != "auto" || !exploration || hasFit(exploration))
    return exploration;
  SearchCounts counts = exploration->counts;
  Pins away = pins;
  away.offloadsAsNeeded = true;
  for (const char *choice : {"optimizer", "residuals", "all"}) {
    away.offload = choice;
    Result<Exploration> tried = exploreKept(graph, job, cluster, away, top);
    bool isFaster = hasFit(tried) && (!hasFit(exploration) ||
                                      tried->exact.front().plan.prediction.stepSeconds <
                                          exploration->exact.front().plan.prediction.stepSeconds);
    if (tried)
      counts += tried->counts;
    if (isFaster)
      exploration = std::move(tried);
  }
  exploration->counts = counts;
  return exploration;
}

Result<SearchAnswer> search(const Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, const Progress &progress) {
  Result<Exploration> exploration = exploreOffload(graph, job, cluster, pins, pins.top, progress);
  if (!exploration)
    return exploration.error();
  if (exploration->exact.empty() || !exploration->exact.front().plan.prediction.fits)
    return explainInfeasible(graph, job, cluster, pins, *exploration);

  SearchAnswer answer;
  answer.plan = exploration->exact.front().plan;
  answer.counts = exploration->counts;
  Plan &plan = answer.plan;
  plan.lowerBoundSeconds = std::min(exploration->lowerBoundSeconds, plan.prediction.stepSeconds);
  explainChoice(*exploration, graph, job, pins, plan);
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  for (std::string &line : unsplitWork(*step))
    plan.assumptions.push_back(std::move(line));
  plan.blocks = blockRows(graph, *step, plan);
  plan.stageNames = stageNames(graph, plan.job, plan.stages);
  return answer;
}

Result<Plan> costOf(const Graph &graph, const Job &job, const Cluster &cluster, const Pins &pins) {
  Result<Exploration> exploration = exploreOffload(graph, job, cluster, pins, 1);
  if (!exploration)
    return exploration.error();
  if (exploration->exact.empty())
    return explainInfeasible(graph, job, cluster, pins, *exploration);
  return std::move(exploration->exact.front().plan);
}

Result<Prediction> predict(const Graph &graph, const Plan &plan) {
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  return predictStep(*step, plan);
}

} // namespace tbc::planner
