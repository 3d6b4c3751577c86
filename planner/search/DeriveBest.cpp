//===- DeriveBest.cpp - Exact derivation of the best candidates -----------===//

#include "planner/search/DeriveBest.h"
#include "planner/cost/StageNetworks.h"
#include "planner/devices/StageDevices.h"
#include "planner/graph/Stages.h"
#include "planner/memory/Memory.h"
#include "planner/plan/PlanApply.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Evaluate.h"
#include "planner/search/CandidateOrder.h"
#include "planner/search/OffloadBlocks.h"
#include "planner/search/PartialRecompute.h"
#include "planner/search/PlanOf.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::planner {

bool isSmallGraph(const Graph &graph) { return graph.ops.size() < 200; }

static bool isVerySmallGraph(const Graph &graph) { return graph.ops.size() < 64; }

int64_t DeriveLimits::limitBytes(const Cluster &devices) const {
  Plan plan;
  plan.memoryLimitBytes = memoryLimitBytes;
  return plan.limitBytes(devices);
}

int64_t DeriveLimits::excessBytes(const Plan &plan) const {
  const Prediction &p = plan.prediction;
  return (goal == MemoryVerdict::Fits ? p.highBytes : p.peakBytes) - p.limitBytes;
}

/// Whether the ends of blocks take so much of the step that smaller buckets may be faster.
static bool hasLongEnds(int64_t accumulation, const Prediction &prediction) {
  constexpr double worthATry = 0.01;
  double seconds = 0;
  for (const ChunkSeconds &chunk : prediction.chunks)
    seconds =
        std::max(seconds, chunk.seconds.firstGatherForward + chunk.seconds.firstGatherBackward +
                              chunk.seconds.lastReduceMicro);
  return double(accumulation) * seconds > worthATry * prediction.stepSeconds;
}

/// Derives `candidate` op by op, with the fastest buckets and gathers that fit. In a large graph
/// these are the largest that fit, or the next smaller ones.
static Result<ExactCandidate> deriveOnce(Searcher &searcher, const Graph &graph,
                                         const Candidate &candidate, const DeriveLimits &limits,
                                         const OverlapPins &pins) {
  ++searcher.counts.derived;
  ExactCandidate exact{candidate, planOf(searcher.costs, candidate)};
  exact.plan.cluster = limits.cluster;
  exact.plan.memoryLimitBytes = limits.memoryLimitBytes;
  Result<PlannedStep> step = applyPlan(graph, exact.plan);
  if (!step)
    return step.error();
  Derivation derivation = derive(step->graph, step->assignment);
  const StageDevices devices = stageDevices(exact.plan);
  StageNetworks networks(devices, step->assignment.mesh, step->assignment.pipelineAxis);
  std::vector<OverlapSettings> choices = overlapChoices(
      pins, gatherUnit(searcher.problem, candidate.mesh), step->graph, derivation, networks.of(0));
  struct Tried {
    OverlapSettings overlap;
    Prediction prediction;
  };
  auto tryChoice = [&](const OverlapSettings &choice) {
    exact.plan.overlap = choice;
    return Tried{choice, predictStep(*step, exact.plan, derivation)};
  };
  auto fits = [&](const Tried &tried) { return tried.prediction.meets(limits.goal); };
  Tried best = tryChoice(choices.front());
  const bool isShort = !fits(best); // of memory
  // If it does not fit with the last choice, which takes the least memory, it fits with no choice.
  if (isShort && choices.size() > 1)
    best = tryChoice(choices.back());
  // In a large graph the first choice that fits is taken, or the next if that looks faster.
  auto isWorthATry = [&](size_t i) {
    return isSmallGraph(graph) ||
           (isShort ? best.overlap == choices.back()
                    : i == 1 && hasLongEnds(exact.plan.accumulation, best.prediction));
  };
  const size_t end = choices.size() - (isShort ? 1 : 0);
  for (size_t i = 1; i < end && fits(best) && isWorthATry(i); ++i) {
    Tried next = tryChoice(choices[i]);
    if (fits(next) && next.prediction.stepSeconds < best.prediction.stepSeconds)
      best = std::move(next);
  }
  exact.plan.overlap = best.overlap;
  exact.plan.prediction = std::move(best.prediction);
  return exact;
}

namespace {

/// The numbers of recomputed blocks with which the stages of a candidate were derived and did not
/// fit. In a large graph, a stage that recomputes fewer blocks holds no less.
class TooFewBlocks {
public:
  /// `headroomBytes`: by stage of the derived candidate.
  void add(const Candidate &derived, const std::vector<double> &headroomBytes) {
    if (derived.recompute != mode || derived.offloadedBlocks != offloadedBlocks)
      most.clear();
    mode = derived.recompute;
    offloadedBlocks = derived.offloadedBlocks;
    most.resize(derived.recomputedBlocks.size(), -1);
    for (size_t stage = 0; stage < most.size(); ++stage)
      if (headroomBytes[stage] < 0)
        most[stage] = std::max(most[stage], derived.recomputedBlocks[stage]);
  }

  /// Whether some stage of `candidate` recomputes no more blocks than one that did not fit.
  bool has(const Candidate &candidate) const {
    if (candidate.recompute != mode || candidate.offloadedBlocks != offloadedBlocks)
      return false;
    for (size_t stage = 0; stage < most.size(); ++stage)
      if (candidate.recomputedBlocks[stage] <= most[stage])
        return true;
    return false;
  }

private:
  RecomputeMode mode = RecomputeMode::None;
  std::vector<int64_t> offloadedBlocks;
  std::vector<int64_t> most; // by stage; -1: every number may fit
};

} // namespace

/// Derives `candidate` op by op. If it recomputes as few blocks as fit by its score, the small
/// error of the score is corrected: it recomputes more blocks if necessary, fewer if possible and,
/// in a large graph, worth a derivation.
Result<ExactCandidate> deriveExactly(Searcher &searcher, const Graph &graph, Candidate candidate,
                                     const DeriveLimits &limits, const OverlapPins &pins) {
  constexpr int mostTries = 8;
  Result<ExactCandidate> exact = deriveOnce(searcher, graph, candidate, limits, pins);
  auto roomOf = [&](const Plan &plan) {
    const StageDevices devices = stageDevices(plan);
    std::vector<double> room; // by stage
    for (const StageMemory &stage : plan.prediction.stages) {
      const Cluster &cluster = devices.of(int(room.size()));
      int64_t bytes = limits.goal == MemoryVerdict::Fits ? memoryInterval(stage, cluster).second
                                                         : stage.totalBytes();
      room.push_back(double(plan.limitBytes(cluster) - bytes));
    }
    return room;
  };
  auto fits = [&](const Result<ExactCandidate> &derived) {
    return derived->plan.prediction.meets(limits.goal);
  };
  TooFewBlocks tooFew;
  // It fits by its score. If the score is wrong, the modes of more recomputation may not be among
  // the candidates: a score leaves them out where the weaker mode fits.
  const bool mayStrengthen = candidate.feasible;
  double fastest = 0; // of the plans with less recomputation
  for (int tries = 0; exact && !fits(exact) && tries < mostTries; ++tries) {
    fastest = tries == 0 ? exact->plan.prediction.stepSeconds
                         : std::min(fastest, exact->plan.prediction.stepSeconds);
    std::vector<double> room = roomOf(exact->plan);
    tooFew.add(candidate, room);
    if (!recomputeMore(searcher.costs, candidate, room) &&
        !offloadMore(searcher.costs, candidate, room) &&
        !(mayStrengthen && recomputeStronger(searcher.costs, candidate) &&
          recomputeMore(searcher.costs, candidate, room)))
      break;
    exact = deriveOnce(searcher, graph, candidate, limits, pins);
  }
  // The plans that recompute less than this one and do not fit bound its gain.
  const double worthwhile = isSmallGraph(graph) ? 0 : 1e-3;
  for (int tries = 0; exact && fits(exact) && tries < mostTries; ++tries) {
    const double seconds = exact->plan.prediction.stepSeconds;
    if (fastest > 0 && seconds < fastest * (1 + worthwhile))
      break;
    if (!recomputeLess(searcher.costs, candidate, roomOf(exact->plan)) ||
        (!isSmallGraph(graph) && tooFew.has(candidate)))
      break;
    Result<ExactCandidate> fewer = deriveOnce(searcher, graph, candidate, limits, pins);
    // The headroom may be worth more for buckets.
    if (!fewer || !fits(fewer) ||
        fewer->plan.prediction.stepSeconds > exact->plan.prediction.stepSeconds)
      break;
    exact = std::move(fewer);
  }
  return exact;
}

/// The same for a very small graph: also moves the cuts, one at a time and to any position, as long
/// as this helps.
static Result<ExactCandidate> deriveWithCuts(Searcher &searcher, const Graph &graph,
                                             Candidate candidate, const DeriveLimits &limits,
                                             const OverlapPins &pins) {
  Result<ExactCandidate> best = deriveExactly(searcher, graph, candidate, limits, pins);
  const std::vector<bool> mayBegin = stageMayBegin(graph);
  auto beginOf = [&](size_t chunk) {
    return chunk < candidate.firstOps.size() ? candidate.firstOps[chunk] : int(mayBegin.size());
  };
  auto isBetter = [&](const Plan &a, const Plan &b) {
    bool aFits = a.prediction.meets(limits.goal), bFits = b.prediction.meets(limits.goal);
    return aFits != bFits ? aFits
           : aFits        ? a.prediction.stepSeconds < b.prediction.stepSeconds
                          : limits.excessBytes(a) < limits.excessBytes(b);
  };
  constexpr int mostRounds = 3;
  bool improved = true;
  for (int round = 0; best && improved && round < mostRounds; ++round) {
    improved = false;
    for (size_t chunk = 1; chunk < candidate.firstOps.size(); ++chunk)
      for (int op = beginOf(chunk - 1) + 1; op < beginOf(chunk + 1); ++op) {
        if (!mayBegin[op] || op == beginOf(chunk))
          continue;
        Candidate moved = candidate; // without the recomputation chosen for the earlier cuts
        searcher.pricer.moveCut(moved, chunk, op);
        Result<ExactCandidate> there = deriveExactly(searcher, graph, moved, limits, pins);
        if (!there)
          return there.error();
        if (!isBetter(there->plan, best->plan))
          continue;
        best = std::move(there);
        candidate = std::move(moved);
        improved = true;
      }
  }
  return best;
}

void sortExact(std::vector<ExactCandidate> &exact, MemoryVerdict goal) {
  std::sort(exact.begin(), exact.end(), [&](const ExactCandidate &a, const ExactCandidate &b) {
    const Prediction &p = a.plan.prediction, &q = b.plan.prediction;
    if (p.meets(goal) != q.meets(goal))
      return p.meets(goal);
    return std::tie(p.stepSeconds, a.candidate.order) < std::tie(q.stepSeconds, b.candidate.order);
  });
}

/// Keeps the best of each group, the best of all first.
static void keepBestOfGroups(std::vector<ExactCandidate> &exact, MemoryVerdict goal) {
  if (exact.empty())
    return;
  sortExact(exact, goal);
  std::set<decltype(groupOf(exact[0].candidate))> known;
  auto isKnown = [&](const ExactCandidate &e) {
    return !known.insert(groupOf(e.candidate)).second;
  };
  exact.erase(std::remove_if(exact.begin(), exact.end(), isKnown), exact.end());
}

Result<std::vector<ExactCandidate>> deriveBest(Searcher &searcher, Workers &workers,
                                               const Graph &graph, std::vector<Candidate> scored,
                                               const DeriveLimits &limits, const OverlapPins &pins,
                                               DerivedCandidates &derived) {
  const bool isSmall = isSmallGraph(graph), isTiny = isVerySmallGraph(graph);
  const double timeError = isTiny ? 0.3 : 0.02, memoryError = isTiny ? 1.0 : isSmall ? 0.5 : 0;
  const size_t top = limits.top, most = isSmall ? 256 : limits.most;
  // If no plan fits: the number of candidates tried, and the largest ratio of needed to available
  // memory by their score. Brute force found no plan outside these limits. Without them, a hopeless
  // limit took minutes to report.
  constexpr size_t mostHopes = 512;
  constexpr double mostShort = 4;
  const Cluster upper = atUpperEnd(limits.cluster);
  const auto limit = double(limits.limitBytes(limits.cluster));
  const auto context =
      double(limits.goal == MemoryVerdict::Fits ? upper.contextBytes : limits.cluster.contextBytes);
  const double room = limit - context; // for the program itself
  auto mayFit = [&](const Candidate &candidate) {
    return candidate.feasible || candidate.peakBytes <= limit * (1 + memoryError);
  };
  double best = INFINITY; // of the examined ones, in their order
  // The smallest ratio of exact seconds to those of the score: pipelines of many stages score too
  // fast, all alike. The error beyond it is small.
  double ratio = INFINITY;
  std::vector<ExactCandidate> exact;
  auto take = [&](const Candidate &candidate, const ExactCandidate &result) {
    const Prediction &prediction = result.plan.prediction;
    if (prediction.meets(limits.goal)) {
      best = std::min(best, prediction.stepSeconds);
      ratio = std::min(ratio, prediction.stepSeconds / candidate.seconds);
    }
    exact.push_back(result);
  };
  auto isTaken = [&](const Candidate &candidate) {
    auto found = derived.find(candidate.order);
    if (found != derived.end())
      take(candidate, found->second);
    return found != derived.end();
  };
  scored.erase(std::remove_if(scored.begin(), scored.end(), isTaken), scored.end());
  std::sort(scored.begin(), scored.end(), [&](const Candidate &a, const Candidate &b) {
    return isBetter(a, mayFit(a), b, mayFit(b));
  });
  constexpr double relativeError = 0.005;
  auto isWanted = [&](size_t i) {
    if (i >= scored.size() || i < top)
      return i < scored.size();
    // Until a plan fits, take every candidate that is not hopeless.
    if (!std::isfinite(best) && isTiny)
      return i < mostHopes && scored[i].peakBytes - context <= mostShort * room;
    const bool isSlowerThanScored = !isSmall && std::isfinite(ratio) && ratio > 1;
    const double expected = scored[i].seconds * (isSlowerThanScored ? ratio : 1);
    const double error = isSlowerThanScored ? relativeError : timeError;
    bool mayWin = !std::isfinite(best) || expected < best * (1 + error);
    return i < most && mayFit(scored[i]) && mayWin;
  };
  auto isRuledOut = [&](size_t i) { return i >= top && scored[i].lowerBound >= best; };
  auto derive = isTiny && searcher.problem.stageBegins.empty() ? deriveWithCuts : deriveExactly;
  std::vector<std::optional<Result<ExactCandidate>>> ahead(scored.size());
  for (size_t i = 0; isWanted(i); ++i) {
    if (isRuledOut(i))
      continue;
    if (std::isfinite(best) && limits.deadline.isOver())
      break;
    if (!ahead[i]) {
      std::vector<size_t> next{i};
      size_t far = std::max(top, i + size_t(workers.count()));
      for (size_t k = i + 1; k < far && workers.count() > 1 && isWanted(k); ++k)
        if (!isRuledOut(k))
          next.push_back(k);
      workers.run(next.size(), [&](size_t k) {
        Candidate candidate = scored[next[k]];
        if (!isSmall)
          searcher.pricer.score(candidate, /*refine=*/true);
        ahead[next[k]] = derive(searcher, graph, std::move(candidate), limits, pins);
      });
    }
    if (!*ahead[i])
      return ahead[i]->error();
    take(scored[i], derived.emplace(scored[i].order, std::move(**ahead[i])).first->second);
  }
  keepBestOfGroups(exact, limits.goal);
  return exact;
}

} // namespace tbc::planner
