//===- Search.cpp - The best plan for a job, with reasons and a bound ------===//

#include "planner/search/Search.h"
#include "planner/layout/LayoutOf.h"
#include "planner/plan/JobGraph.h"
#include "planner/plan/PlanApply.h"
#include "planner/predict/Evaluate.h"
#include "planner/report/BlockNames.h"
#include "planner/report/Blocks.h"
#include "planner/report/Fp8Notes.h"
#include "planner/report/LowMfu.h"
#include "planner/report/Summary.h"
#include "planner/report/Unsplit.h"
#include "planner/search/DeriveBest.h"
#include "planner/search/Explore.h"
#include "planner/search/Infeasible.h"
#include "planner/search/Reasons.h"
#include "planner/support/Format.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// The request, without the pins.
struct Question {
  const Graph &graph;
  const Job &job;
  const Cluster &cluster;
  int top;
  Purpose purpose;

  Result<Exploration> explore(const Pins &pins, const Progress &progress = {}) const {
    return planner::explore(graph, job, cluster, pins, top, purpose, progress);
  }
};

} // namespace

/// Explores. If no plan fits in a small graph without forced recomputation, also explores without
/// recomputation for speed only, and takes the better answer. Such recomputation keeps the operands
/// of the recomputed op, which may be larger than its result. Single tensors count in a small
/// graph.
static Result<Exploration> exploreKept(const Question &question, const Pins &pins,
                                       const Progress &progress = {}) {
  Result<Exploration> exploration = question.explore(pins, progress);
  if (!exploration || exploration->provesNothingFits || !pins.recomputeIsOpen() ||
      !isSmallGraph(question.graph))
    return exploration;
  const bool hasFit = exploration->hasFit(pins.memoryGoal);
  if (hasFit && exploration->exact.front().candidate.recompute == RecomputeMode::None)
    return exploration;
  Pins plain = pins;
  plain.recompute = name(RecomputeMode::None);
  Result<Exploration> tried = question.explore(plain);
  if (tried)
    exploration->counts += tried->counts;
  if (!tried || !tried->hasFit(pins.memoryGoal))
    return exploration;
  const auto secondsOf = [](const Exploration &answer) {
    return answer.exact.front().plan.prediction.stepSeconds;
  };
  if (hasFit && secondsOf(*tried) >= secondsOf(*exploration))
    return exploration;
  tried->counts = exploration->counts;
  tried->lowerBoundSeconds = exploration->lowerBoundSeconds; // of all plans
  return tried;
}

/// The same. If --offload is auto and no plan fits without it, tries every kind of offload and
/// takes the fastest.
static Result<Exploration> exploreOffload(const Question &question, const Pins &pins,
                                          const Progress &progress) {
  Result<Exploration> exploration = exploreKept(question, pins, progress);
  if (!pins.offloadIsOpen() || !exploration || exploration->hasFit(pins.memoryGoal))
    return exploration;
  SearchCounts counts = exploration->counts;
  Pins offloading = pins;
  offloading.offloadsAsNeeded = true;
  for (const char *choice : {"optimizer", "residuals", "all"}) {
    offloading.offload = choice;
    Result<Exploration> tried = exploreKept(question, offloading);
    bool isFaster = tried && tried->hasFit(pins.memoryGoal) &&
                    (!exploration->hasFit(pins.memoryGoal) ||
                     tried->exact.front().plan.prediction.stepSeconds <
                         exploration->exact.front().plan.prediction.stepSeconds);
    if (tried)
      counts += tried->counts;
    // A result that might fit is better than a proof that another cannot.
    if (isFaster || (tried && exploration->provesNothingFits && !tried->provesNothingFits))
      exploration = std::move(tried);
  }
  exploration->counts = counts;
  return exploration;
}

/// The same for the best possible memory verdict. Sets `pins.memoryGoal` to it, or to Tight if no
/// plan fits.
static Result<Exploration> exploreForVerdict(const Question &question, Pins &pins,
                                             const Progress &progress = {}) {
  Result<Exploration> exploration = exploreOffload(question, pins, progress);
  if (!exploration || exploration->hasFit(pins.memoryGoal) ||
      pins.memoryGoal != MemoryVerdict::Fits)
    return exploration;
  SearchCounts counts = exploration->counts;
  pins.memoryGoal = MemoryVerdict::Tight;
  exploration = exploreOffload(question, pins, progress);
  if (exploration) {
    counts += exploration->counts;
    exploration->counts = counts;
  }
  return exploration;
}

/// Adds a warning to `plan` if its memory verdict is Tight.
static void warnOfMemory(const Pins &asked, Plan &plan) {
  const Prediction &p = plan.prediction;
  if (p.memory != MemoryVerdict::Tight)
    return;
  std::string over = "tight: the upper end of the estimate is " +
                     formatBytes(double(p.highBytes - p.limitBytes)) + " over the limit; ";
  plan.warnings.push_back(over + (asked.memoryGoal == MemoryVerdict::Fits
                                      ? "no plan was found that fits with a margin"
                                      : "without --memory-risk the plan has a margin"));
}

Result<SearchAnswer> search(const Graph &ofModel, const Job &job, const Cluster &cluster,
                            const Pins &asked, const Progress &progress) {
  const Graph graph = graphOfJob(ofModel, job, cluster);
  if (Status status = checkMatmulPrecision(graph, job, cluster); !status)
    return status.error();
  Pins pins = asked;
  const Question question{graph, job, cluster, pins.top, Purpose::Answer};
  Result<Exploration> exploration = exploreForVerdict(question, pins, progress);
  if (!exploration)
    return exploration.error();
  if (!exploration->hasFit(pins.memoryGoal))
    return explainInfeasible(graph, job, cluster, asked, *exploration);

  SearchAnswer answer;
  answer.plan = exploration->exact.front().plan;
  answer.counts = exploration->counts;
  Plan &plan = answer.plan;
  plan.lowerBoundSeconds = std::min(exploration->lowerBoundSeconds, plan.prediction.stepSeconds);
  plan.searchEnd = exploration->end;
  explainChoice(*exploration, graph, job, pins, plan);
  warnOfMemory(asked, plan);
  if (std::string warning = lowMfuWarning(plan); !warning.empty())
    plan.warnings.push_back(std::move(warning));
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  for (std::string &line : unsplitWork(*step))
    plan.warnings.push_back(std::move(line));
  Result<std::vector<std::string>> ofFp8 = fp8Warnings(ofModel, *step, plan);
  if (!ofFp8)
    return ofFp8.error();
  for (std::string &line : *ofFp8)
    plan.warnings.push_back(std::move(line));
  plan.blocks = blockRows(graph, *step, plan);
  plan.stageNames = stageNames(graph, plan.job, plan.stages);
  plan.layout = layoutOf(graph, *step, plan);
  return answer;
}

Result<Plan> costOf(const Graph &ofModel, const Job &job, const Cluster &cluster,
                    const Pins &asked) {
  const Graph graph = graphOfJob(ofModel, job, cluster);
  if (Status status = checkMatmulPrecision(graph, job, cluster); !status)
    return status.error();
  Pins pins = asked;
  const Question question{graph, job, cluster, 1, Purpose::Cost};
  Result<Exploration> exploration = exploreForVerdict(question, pins);
  if (!exploration)
    return exploration.error();
  if (exploration->exact.empty())
    return explainInfeasible(graph, job, cluster, asked, *exploration);
  return std::move(exploration->exact.front().plan);
}

} // namespace tbc::planner
