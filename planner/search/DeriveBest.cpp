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
#include <utility>

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
  for (const ChunkSeconds &chunk : prediction.chunks) {
    const StageSeconds &of = chunk.seconds;
    const double each = of.firstGatherForward + of.firstGatherBackward + of.lastReduceMicro;
    seconds = std::max(seconds, double(accumulation) * each + of.lastReduceStep);
  }
  return seconds > worthATry * prediction.stepSeconds;
}

namespace {

/// A prediction with its buckets and gathers.
struct Overlapped {
  OverlapSettings overlap;
  Prediction prediction;
};

/// A candidate derived with buckets and gathers that fit. `tooLarge`: with the larger ones that do
/// not, from the largest down.
struct Derived {
  ExactCandidate exact;
  std::vector<Prediction> tooLarge;
};

} // namespace

/// Returns the fastest of `choices` that fits; if there is none, the last, which takes the least
/// memory.
static Overlapped fastestThatFits(const StepPredictor &predictor,
                                  const std::vector<OverlapSettings> &choices, MemoryVerdict goal) {
  std::vector<std::pair<double, size_t>> bySeconds;
  for (size_t i = 0; i < choices.size(); ++i)
    bySeconds.push_back({choices.size() == 1 ? 0 : predictor.seconds(choices[i]), i});
  std::sort(bySeconds.begin(), bySeconds.end());
  std::optional<Overlapped> last;
  for (const auto &[seconds, i] : bySeconds) {
    Overlapped next{choices[i], predictor.predict(choices[i])};
    if (next.prediction.meets(goal))
      return next;
    if (i + 1 == choices.size())
      last = std::move(next);
  }
  return std::move(*last);
}

/// Returns the largest of `choices` that fits, or one of the next smaller two if that may be
/// faster. Adds the predictions of those that do not fit to `tooLarge`.
static Overlapped largestThatFits(const StepPredictor &predictor,
                                  const std::vector<OverlapSettings> &choices, MemoryVerdict goal,
                                  int64_t accumulation, std::vector<Prediction> &tooLarge) {
  auto tryChoice = [&](const OverlapSettings &choice) {
    return Overlapped{choice, predictor.predict(choice)};
  };
  auto fits = [&](const Overlapped &tried) { return tried.prediction.meets(goal); };
  Overlapped best = tryChoice(choices.front());
  const bool isShort = !fits(best); // of memory
  if (isShort)
    tooLarge.push_back(best.prediction);
  // If it does not fit with the last choice, which takes the least memory, it fits with no choice.
  if (isShort && choices.size() > 1)
    best = tryChoice(choices.back());
  auto isWorthATry = [&](size_t i) {
    return isShort ? best.overlap == choices.back()
                   : i <= 2 && hasLongEnds(accumulation, best.prediction);
  };
  const size_t end = choices.size() - (isShort ? 1 : 0);
  for (size_t i = 1; i < end && fits(best) && isWorthATry(i); ++i) {
    Overlapped next = tryChoice(choices[i]);
    if (isShort && !fits(next))
      tooLarge.push_back(next.prediction);
    if (fits(next) && next.prediction.stepSeconds < best.prediction.stepSeconds)
      best = std::move(next);
  }
  return best;
}

/// Derives `candidate` op by op, with the fastest buckets and gathers that fit. In a large graph
/// these are the largest that fit, or the next smaller ones.
static Result<Derived> deriveOnce(Searcher &searcher, const Graph &graph,
                                  const Candidate &candidate, const DeriveLimits &limits,
                                  const OverlapPins &pins) {
  ++searcher.counts.derived;
  Derived derived{{candidate, planOf(searcher.costs, candidate)}, {}};
  Plan &plan = derived.exact.plan;
  plan.cluster = limits.cluster;
  plan.memoryLimitBytes = limits.memoryLimitBytes;
  Result<PlannedStep> step = applyPlan(graph, plan);
  if (!step)
    return step.error();
  const Derivation derivation = derive(step->graph, step->assignment);
  const StageDevices devices = stageDevices(plan);
  const StageNetworks networks(devices, step->assignment.mesh, step->assignment.pipelineAxis);
  const std::vector<OverlapSettings> choices = overlapChoices(
      pins, gatherUnit(searcher.problem, candidate.mesh), step->graph, derivation, networks.of(0));
  const StepPredictor predictor(*step, plan, derivation);
  Overlapped best = isSmallGraph(graph) ? fastestThatFits(predictor, choices, limits.goal)
                                        : largestThatFits(predictor, choices, limits.goal,
                                                          plan.accumulation, derived.tooLarge);
  plan.overlap = best.overlap;
  plan.prediction = std::move(best.prediction);
  return derived;
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

/// Returns the bytes left on each stage with this prediction; negative where they are missing.
static std::vector<double> headroomOf(const Plan &plan, const Prediction &prediction,
                                      const DeriveLimits &limits) {
  const StageDevices devices = stageDevices(plan);
  std::vector<double> headroom;
  for (const StageMemory &stage : prediction.stages) {
    const Cluster &cluster = devices.of(int(headroom.size()));
    const int64_t bytes = limits.goal == MemoryVerdict::Fits ? memoryInterval(stage, cluster).second
                                                             : stage.totalBytes();
    headroom.push_back(double(plan.limitBytes(cluster) - bytes));
  }
  return headroom;
}

/// Recomputes more blocks of `candidate`, if necessary in a stronger mode. Returns false if no
/// further block can be recomputed.
static bool recomputeFurther(const CostTables &costs, Candidate &candidate,
                             const std::vector<double> &headroomBytes, bool mayStrengthen) {
  return recomputeMore(costs, candidate, headroomBytes) ||
         (mayStrengthen && recomputeStronger(costs, candidate) &&
          recomputeMore(costs, candidate, headroomBytes));
}

/// Recomputes more blocks than `first` as long as the memory may be worth more for the buckets and
/// joint gathers of its `tooLarge[choice]`. Improves `derived`, the fastest plan found.
static Status affordChoice(Searcher &searcher, const Graph &graph, const Derived &first,
                           size_t choice, const DeriveLimits &limits, const OverlapPins &pins,
                           Derived &derived) {
  constexpr int mostTries = 3;
  constexpr double worthATry = 0.01;
  Derived tried = first;
  for (int tries = 0; choice < tried.tooLarge.size() && tries < mostTries; ++tries) {
    const double best = derived.exact.plan.prediction.stepSeconds;
    const Prediction &wanted = tried.tooLarge[choice];
    if (wanted.stepSeconds >= best * (1 - worthATry))
      break;
    Candidate candidate = tried.exact.candidate;
    if (!recomputeFurther(searcher.costs, candidate, headroomOf(tried.exact.plan, wanted, limits),
                          candidate.feasible))
      break;
    Result<Derived> next = deriveOnce(searcher, graph, candidate, limits, pins);
    if (!next)
      return next.error();
    tried = std::move(*next);
    const Prediction &prediction = tried.exact.plan.prediction;
    if (prediction.meets(limits.goal) && prediction.stepSeconds < best)
      derived = tried;
  }
  return Status::ok();
}

/// Recomputes more blocks where the memory is worth more for buckets and joint gathers: the largest
/// ones, and the next smaller. Returns the fastest plan found. Example: a gather of each parameter
/// starts 1446 rings, and with 12 recomputed layers instead of 4 there are 727: 6.3 s instead of
/// 9.7 s.
static Result<Derived> affordOverlap(Searcher &searcher, const Graph &graph, Derived derived,
                                     const DeriveLimits &limits, const OverlapPins &pins) {
  const Derived first = derived;
  for (size_t choice : {size_t(0), size_t(1)})
    if (Status status = affordChoice(searcher, graph, first, choice, limits, pins, derived);
        !status)
      return status.error();
  return derived;
}

/// Derives `candidate` op by op. If it recomputes as few blocks as fit by its score, the small
/// error of the score is corrected: it recomputes more blocks if necessary, fewer if possible and,
/// in a large graph, worth a derivation.
static Result<Derived> deriveBlocks(Searcher &searcher, const Graph &graph, Candidate candidate,
                                    const DeriveLimits &limits, const OverlapPins &pins) {
  constexpr int mostTries = 8;
  Result<Derived> derived = deriveOnce(searcher, graph, candidate, limits, pins);
  auto predictionOf = [](const Result<Derived> &of) -> const Prediction & {
    return of->exact.plan.prediction;
  };
  auto fits = [&](const Result<Derived> &of) { return predictionOf(of).meets(limits.goal); };
  auto headroom = [&] { return headroomOf(derived->exact.plan, predictionOf(derived), limits); };
  TooFewBlocks tooFew;
  // It fits by its score. If the score is wrong, the modes of more recomputation may not be among
  // the candidates: a score leaves them out where the weaker mode fits.
  const bool mayStrengthen = candidate.feasible;
  double fastest = 0; // of the plans with less recomputation
  for (int tries = 0; derived && !fits(derived) && tries < mostTries; ++tries) {
    const double seconds = predictionOf(derived).stepSeconds;
    fastest = tries == 0 ? seconds : std::min(fastest, seconds);
    const std::vector<double> room = headroom();
    tooFew.add(candidate, room);
    if (!recomputeMore(searcher.costs, candidate, room) &&
        !offloadMore(searcher.costs, candidate, room) &&
        !recomputeFurther(searcher.costs, candidate, room, mayStrengthen))
      break;
    derived = deriveOnce(searcher, graph, candidate, limits, pins);
  }
  // The plans that recompute less than this one and do not fit bound its gain.
  const double worthwhile = isSmallGraph(graph) ? 0 : 1e-3;
  for (int tries = 0; derived && fits(derived) && tries < mostTries; ++tries) {
    const double seconds = predictionOf(derived).stepSeconds;
    if (fastest > 0 && seconds < fastest * (1 + worthwhile))
      break;
    if (!recomputeLess(searcher.costs, candidate, headroom()) ||
        (!isSmallGraph(graph) && tooFew.has(candidate)))
      break;
    Result<Derived> fewer = deriveOnce(searcher, graph, candidate, limits, pins);
    // The headroom may be worth more for buckets.
    if (!fewer || !fits(fewer) || predictionOf(fewer).stepSeconds > seconds)
      break;
    derived = std::move(fewer);
  }
  return derived;
}

Result<ExactCandidate> deriveExactly(Searcher &searcher, const Graph &graph, Candidate candidate,
                                     const DeriveLimits &limits, const OverlapPins &pins) {
  Result<Derived> derived = deriveBlocks(searcher, graph, std::move(candidate), limits, pins);
  if (derived && derived->exact.plan.prediction.meets(limits.goal))
    derived = affordOverlap(searcher, graph, std::move(*derived), limits, pins);
  if (!derived)
    return derived.error();
  return std::move(derived->exact);
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
  // Scores of single tensors are not so wrong.
  constexpr double timeError = 0.3;
  // Still less wrong is the difference between two cuts of one candidate.
  constexpr double differenceError = 0.1;
  auto isHopeless = [&](const Candidate &moved) {
    const Prediction &p = best->plan.prediction;
    return p.meets(limits.goal) && (moved.seconds > p.stepSeconds * (1 + timeError) ||
                                    moved.seconds > candidate.seconds * (1 + differenceError));
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
        if (isHopeless(moved))
          continue;
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

void keepBestOfGroups(std::vector<ExactCandidate> &exact, MemoryVerdict goal) {
  if (exact.empty())
    return;
  sortExact(exact, goal);
  std::set<decltype(groupOf(exact[0].candidate))> known;
  auto isKnown = [&](const ExactCandidate &e) {
    return !known.insert(groupOf(e.candidate)).second;
  };
  exact.erase(std::remove_if(exact.begin(), exact.end(), isKnown), exact.end());
}

namespace {

/// Derives scored candidates in their order, as long as the next may be the best.
class BestFirst {
public:
  BestFirst(Searcher &searcher, Workers &workers, const Graph &graph, const DeriveLimits &limits,
            const OverlapPins &pins, DerivedCandidates &derived)
      : searcher(searcher), workers(workers), graph(graph), limits(limits), pins(pins),
        derived(derived), isSmall(isSmallGraph(graph)), isTiny(isVerySmallGraph(graph)),
        limit(double(limits.limitBytes(limits.cluster))),
        contextBytes(double(limits.goal == MemoryVerdict::Fits
                                ? atUpperEnd(limits.cluster).contextBytes
                                : limits.cluster.contextBytes)),
        best(limits.fastest) {}

  Result<std::vector<ExactCandidate>> run(std::vector<Candidate> candidates) {
    scored = std::move(candidates);
    auto isTaken = [&](const Candidate &candidate) {
      const auto found = derived.find(candidate.order);
      if (found != derived.end())
        take(candidate, found->second);
      return found != derived.end();
    };
    scored.erase(std::remove_if(scored.begin(), scored.end(), isTaken), scored.end());
    std::sort(scored.begin(), scored.end(), [&](const Candidate &a, const Candidate &b) {
      return isBetter(a, mayFit(a), b, mayFit(b));
    });
    ahead.resize(scored.size());
    for (size_t i = 0; isWanted(i); ++i) {
      if (isRuledOut(i))
        continue;
      if (std::isfinite(best) && limits.deadline.isOver())
        break;
      if (!ahead[i])
        deriveFrom(i);
      if (!*ahead[i])
        return ahead[i]->error();
      take(scored[i], derived.emplace(scored[i].order, std::move(**ahead[i])).first->second);
    }
    keepBestOfGroups(exact, limits.goal);
    return std::move(exact);
  }

private:
  bool mayFit(const Candidate &candidate) const {
    const double memoryError = isTiny ? 1.0 : isSmall ? 0.5 : 0;
    return candidate.feasible || candidate.peakBytes <= limit * (1 + memoryError);
  }

  void take(const Candidate &candidate, const ExactCandidate &result) {
    const Prediction &prediction = result.plan.prediction;
    if (prediction.meets(limits.goal)) {
      best = std::min(best, prediction.stepSeconds);
      ratio = std::min(ratio, prediction.stepSeconds / candidate.seconds);
    }
    exact.push_back(result);
  }

  bool isWanted(size_t i) const {
    constexpr double mostBeyond = 0.1; // a plan known before
    if (i >= scored.size() || i < limits.top)
      return i < scored.size() && scored[i].seconds < limits.fastest * (1 + mostBeyond);
    // Until a plan fits, take every candidate that is not hopeless.
    if (!std::isfinite(best) && isTiny)
      return isHope(i);
    const size_t most = isSmall ? 256 : limits.most;
    return i < most && mayFit(scored[i]) && mayWin(scored[i].seconds);
  }

  /// If no plan fits: the number of candidates tried, and the largest ratio of needed to available
  /// memory by their score. Brute force found no plan outside these limits. Without them, a
  /// hopeless limit took minutes to report.
  bool isHope(size_t i) const {
    constexpr size_t mostHopes = 512;
    constexpr double mostShort = 4;
    const double room = limit - contextBytes; // for the program itself
    return i < mostHopes && scored[i].peakBytes - contextBytes <= mostShort * room;
  }

  bool mayWin(double seconds) const {
    if (!std::isfinite(best))
      return true;
    constexpr double relativeError = 0.005; // beyond `ratio`
    const double timeError = isTiny ? 0.3 : 0.02;
    const bool isSlowerThanScored = !isSmall && std::isfinite(ratio) && ratio > 1;
    return isSlowerThanScored ? seconds * ratio < best * (1 + relativeError)
                              : seconds < best * (1 + timeError);
  }

  bool isRuledOut(size_t i) const { return i >= limits.top && scored[i].lowerBound >= best; }

  /// Derives the candidate `i`, and beside it those that will probably be next.
  void deriveFrom(size_t i) {
    std::vector<size_t> next{i};
    const size_t far = std::max(limits.top, i + size_t(workers.count()));
    for (size_t k = i + 1; k < far && workers.count() > 1 && isWanted(k); ++k)
      if (!isRuledOut(k))
        next.push_back(k);
    // Cuts are moved in the best candidates by their score. In near ties of hundreds of candidates,
    // as of a tiny model on 16 devices, the others would take most of the time.
    constexpr size_t mostMoved = 48;
    const bool movesCuts = isTiny && searcher.problem.stageBegins.empty();
    workers.run(next.size(), [&](size_t k) {
      Candidate candidate = scored[next[k]];
      if (!isSmall)
        searcher.pricer.score(candidate, /*refine=*/true);
      const auto derive = movesCuts && next[k] < mostMoved ? deriveWithCuts : deriveExactly;
      ahead[next[k]] = derive(searcher, graph, std::move(candidate), limits, pins);
    });
  }

  Searcher &searcher;
  Workers &workers;
  const Graph &graph;
  const DeriveLimits &limits;
  const OverlapPins &pins;
  DerivedCandidates &derived;
  const bool isSmall, isTiny;
  const double limit, contextBytes; // of a device
  std::vector<Candidate> scored;
  std::vector<std::optional<Result<ExactCandidate>>> ahead; // by candidate
  std::vector<ExactCandidate> exact;
  double best; // seconds, of the plan known before and of those taken
  /// The smallest ratio of exact seconds to those of the score: pipelines of many stages score too
  /// fast, all alike. The error beyond it is small.
  double ratio = INFINITY;
};

} // namespace

Result<std::vector<ExactCandidate>> deriveBest(Searcher &searcher, Workers &workers,
                                               const Graph &graph, std::vector<Candidate> scored,
                                               const DeriveLimits &limits, const OverlapPins &pins,
                                               DerivedCandidates &derived) {
  return BestFirst(searcher, workers, graph, limits, pins, derived).run(std::move(scored));
}

} // namespace tbc::planner
