//===- Explore.cpp - One pass over the search space -----------------------===//

#include "planner/search/Explore.h"
#include "planner/graph/Values.h"
#include "planner/memory/Memory.h"
#include "planner/pins/Space.h"
#include "planner/plan/PlanDevices.h"
#include "planner/predict/Evaluate.h"
#include "planner/reshard/Rebatch.h"
#include "planner/reshard/SequenceOrder.h"
#include "planner/search/CandidateBound.h"
#include "planner/search/Contexts.h"
#include "planner/search/DeriveBest.h"
#include "planner/search/Families.h"
#include "planner/search/Refusals.h"
#include "planner/search/Scorer.h"
#include "planner/search/WhyNone.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

static double leastBound(const std::vector<Candidate> &candidates) {
  double least = INFINITY;
  for (const Candidate &candidate : candidates)
    least = std::min(least, candidate.provenBound);
  return least;
}

/// Returns the least of all bounds, at most `seconds`, the time of some plan. Tightens the least
/// bound again and again, until it is final or `deadline` is over. Example: candidates with bounds
/// of 2 s, 3 s and 5 s, and a plan of 4 s. The first becomes 3.5 s, then the second 3.2 s, and is
/// final with 3.3 s: that is the answer.
static double refineBounds(Searcher &searcher, Workers &workers,
                           const std::vector<Candidate> &candidates,
                           const std::vector<Candidate> &others, double seconds,
                           const Deadline &deadline) {
  std::vector<const Candidate *> loose;
  for (const std::vector<Candidate> *list : {&candidates, &others})
    for (const Candidate &candidate : *list)
      if (candidate.provenBound < seconds)
        loose.push_back(&candidate);
  std::sort(loose.begin(), loose.end(), [](const Candidate *a, const Candidate *b) {
    return std::tie(a->provenBound, a->order) < std::tie(b->provenBound, b->order);
  });
  // Candidates that differ by recomputation share their bound.
  std::set<Bounder::Key> seen;
  auto isKnown = [&](const Candidate *candidate) {
    return !seen.insert(Bounder::keyOf(*candidate)).second;
  };
  loose.erase(std::remove_if(loose.begin(), loose.end(), isKnown), loose.end());
  constexpr int mostFinal = 256; // most share their chains

  std::set<std::tuple<double, bool, size_t>> refined; // bound, whether it is final, index in loose
  size_t next = 0, ahead = 0;
  for (int numFinal = 0;;) {
    const double known = refined.empty() ? seconds : std::get<0>(*refined.begin());
    if (next < loose.size() && loose[next]->provenBound < known) {
      if (deadline.isOver())
        return loose[next]->provenBound;
      if (next >= ahead && workers.count() > 1) {
        ahead = std::min(loose.size(), next + size_t(workers.count()));
        workers.run(ahead - next, [&](size_t k) {
          searcher.bounder.refinedAhead(*loose[next + k], seconds, BoundMeshes::WithContexts);
        });
      }
      const double bound =
          searcher.bounder.refined(*loose[next], seconds, BoundMeshes::WithContexts);
      if (bound < seconds)
        refined.emplace(bound, false, next);
      ++next;
      continue;
    }
    if (refined.empty())
      return seconds;
    const auto [bound, isFinal, index] = *refined.begin();
    if (isFinal || numFinal++ == mostFinal || deadline.isOver())
      return bound;
    refined.erase(refined.begin());
    const double better = std::max(bound, searcher.bounder.refinedFinally(*loose[index], seconds));
    if (better < seconds)
      refined.emplace(better, true, index);
  }
}

namespace {

/// CPU seconds of the process.
class Stopwatch {
public:
  /// Seconds since the previous lap, or since construction.
  double lap() {
    std::clock_t now = std::clock();
    return double(now - std::exchange(begin, now)) / CLOCKS_PER_SEC;
  }

private:
  std::clock_t begin = std::clock();
};

} // namespace

/// Number of hopeless candidates scored anyway, for the reasons of the answer.
constexpr int64_t mostHopeless = 64;

/// Keeps the candidates that may fit and the first `kept` hopeless ones; if all are hopeless, those
/// with the least memory. `candidates` is in order of bounds. Returns the dropped candidates whose
/// bounds still count, because they also cover meshes with cp.
static std::vector<Candidate> dropHopeless(const Searcher &searcher,
                                           std::vector<Candidate> &candidates, int64_t kept) {
  constexpr size_t mostNearest = 256;
  std::vector<Candidate> dropped;
  auto isDropped = [&](const Candidate &candidate) {
    if (!searcher.bounder.isHopeless(candidate) || kept-- > 0)
      return false;
    if (mayBeContext(searcher.problem, candidate))
      dropped.push_back(candidate);
    return true;
  };
  const bool mayFit = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate &c) {
    return !searcher.bounder.isHopeless(c);
  });
  if (mayFit) {
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), isDropped),
                     candidates.end());
  } else if (candidates.size() > mostNearest) {
    auto holdsLess = [](const Candidate &a, const Candidate &b) {
      return std::tie(a.leastBytes, a.order) < std::tie(b.leastBytes, b.order);
    };
    std::sort(candidates.begin(), candidates.end(), holdsLess);
    kept = mostNearest;
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), isDropped),
                     candidates.end());
    std::sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) {
      return std::tie(a.lowerBound, a.order) < std::tie(b.lowerBound, b.order);
    });
  }
  return dropped;
}

/// Returns the best plan of the same configurations without a memory margin, if it is faster: the
/// cost of the margin. Takes a few configurations with fast scores, and derives them on `cluster`
/// itself.
static std::optional<ExactCandidate> withoutMargin(const Graph &graph, const Job &job,
                                                   const Space &space, const PinnedOps &pinned,
                                                   Workers &workers, DeriveLimits limits,
                                                   const Exploration &exploration) {
  constexpr size_t mostScored = 8;
  constexpr double leastGain = 5e-4;
  const double seconds = exploration.exact.front().plan.prediction.stepSeconds;
  std::vector<Candidate> fast;
  for (const Candidate &candidate : exploration.scored)
    if (candidate.lowerBound < seconds * (1 - leastGain) &&
        (!candidate.feasible || candidate.recompute != RecomputeMode::None ||
         !candidate.offloadedBlocks.empty()))
      fast.push_back(candidate);
  std::sort(fast.begin(), fast.end(), [](const Candidate &a, const Candidate &b) {
    return std::tie(a.seconds, a.order) < std::tie(b.seconds, b.order);
  });
  if (fast.size() > mostScored)
    fast.resize(mostScored);
  if (fast.empty())
    return std::nullopt;
  Searcher searcher(graph, job, limits.cluster, space, limits.limitBytes(limits.cluster), pinned,
                    workers);
  std::vector<char> isPossible(fast.size());
  workers.run(fast.size(), [&](size_t i) {
    isPossible[i] = !limits.deadline.isOver() && searcher.pricer.score(fast[i], /*refine=*/false);
  });
  const Candidate *best = nullptr;
  for (size_t i = 0; i < fast.size(); ++i)
    if (isPossible[i] && fast[i].feasible && (!best || isBetter(fast[i], *best)))
      best = &fast[i];
  if (!best || best->seconds >= seconds * (1 - leastGain))
    return std::nullopt;
  limits.goal = MemoryVerdict::Tight;
  Result<ExactCandidate> exact = deriveExactly(searcher, graph, *best, limits, space.overlap());
  if (!exact || exact->plan.prediction.memory != MemoryVerdict::Tight ||
      exact->plan.prediction.stepSeconds >= seconds * (1 - leastGain))
    return std::nullopt;
  return std::move(*exact);
}

/// Returns the number of families of `exact` with a plan that fits and takes at most `seconds`.
static size_t numFamilies(const std::vector<ExactCandidate> &exact, MemoryVerdict goal,
                          double seconds) {
  std::set<Family> families;
  for (const ExactCandidate &known : exact)
    if (known.plan.prediction.meets(goal) && known.plan.prediction.stepSeconds <= seconds)
      families.insert(familyOf(known.candidate));
  return families.size();
}

/// Derives the best candidates of families missing in `exploration.exact`, and inserts them in
/// order. Beyond `tieSeconds` a family is only shown: as one of `top`, of which DDP is one. So
/// those behind as many others by their scores are left out.
static Status addFamilies(Searcher &searcher, const Graph &graph, std::vector<Candidate> ofFamilies,
                          double tieSeconds, size_t top, const DeriveLimits &limits,
                          const OverlapPins &pins, Exploration &exploration) {
  if (!exploration.hasFit(limits.goal))
    return Status::ok();
  auto isThere = [&](const Candidate &candidate) {
    return std::any_of(exploration.exact.begin(), exploration.exact.end(),
                       [&](const ExactCandidate &exact) {
                         return familyOf(exact.candidate) == familyOf(candidate) &&
                                exact.plan.prediction.meets(limits.goal);
                       });
  };
  auto isShown = [&](const Candidate &candidate) {
    return candidate.seconds <= tieSeconds || familyOf(candidate).isDdp() ||
           numFamilies(exploration.exact, limits.goal, candidate.seconds) + 1 < top;
  };
  std::sort(ofFamilies.begin(), ofFamilies.end(), [](const Candidate &a, const Candidate &b) {
    return std::tie(a.seconds, a.order) < std::tie(b.seconds, b.order);
  });
  for (const Candidate &candidate : ofFamilies) {
    if (isThere(candidate) || !isShown(candidate) || limits.deadline.isOver())
      continue;
    Result<ExactCandidate> exact = deriveExactly(searcher, graph, candidate, limits, pins);
    if (!exact)
      return exact.error();
    if (std::none_of(exploration.scored.begin(), exploration.scored.end(),
                     [&](const Candidate &scored) { return scored.order == candidate.order; }))
      exploration.scored.push_back(exact->candidate);
    exploration.exact.push_back(std::move(*exact));
  }
  sortExact(exploration.exact, limits.goal);
  return Status::ok();
}

/// Returns the hopeless candidate nearest to fitting. `candidates` is in order of least memory. For
/// each number of stages, takes the first candidate with the strongest recomputation, because the
/// bound says little about stages.
static std::vector<ExactCandidate> nearestOf(Searcher &searcher, const Graph &graph,
                                             const std::vector<Candidate> &candidates,
                                             const DeriveLimits &limits, const OverlapPins &pins) {
  constexpr size_t mostStages = 6;
  RecomputeMode strongest = RecomputeMode::None;
  for (const Candidate &candidate : candidates)
    strongest = std::max(strongest, candidate.recompute);
  std::optional<Candidate> nearest;
  std::set<int64_t> stages;
  for (size_t i = 0; i < candidates.size() && stages.size() < mostStages; ++i) {
    Candidate candidate = candidates[i];
    if (candidate.recompute < strongest || stages.count(candidate.mesh.pp) ||
        !searcher.pricer.score(candidate, /*refine=*/false))
      continue;
    stages.insert(candidate.mesh.pp);
    if (!nearest || candidate.peakBytes < nearest->peakBytes)
      nearest = std::move(candidate);
  }
  std::vector<ExactCandidate> exact;
  if (nearest)
    if (Result<ExactCandidate> derived = deriveExactly(searcher, graph, *nearest, limits, pins))
      exact.push_back(std::move(*derived));
  return exact;
}

/// Derives the best of `winners` that may be faster than the fastest plan of `exact`, and adds
/// them. Scores of candidates with cp have other errors, so those of other candidates are judged
/// apart.
static Status deriveFaster(Searcher &searcher, Workers &workers, const Graph &graph,
                           std::vector<Candidate> winners, DeriveLimits limits,
                           const OverlapPins &pins, DerivedCandidates &derived,
                           std::vector<ExactCandidate> &exact) {
  if (exact.empty() || !exact.front().plan.prediction.meets(limits.goal))
    return Status::ok();
  limits.fastest = exact.front().plan.prediction.stepSeconds;
  Result<std::vector<ExactCandidate>> more =
      deriveBest(searcher, workers, graph, std::move(winners), limits, pins, derived);
  if (!more)
    return more.error();
  for (ExactCandidate &candidate : *more)
    exact.push_back(std::move(candidate));
  keepBestOfGroups(exact, limits.goal);
  return Status::ok();
}

/// Derives the best candidates: of `contexts`, if there are any, and of `winners` those that may be
/// faster. Where derivation contradicts scores, goes on with the scoring: in a
/// small graph until no other candidate can win, in a large one until a plan fits or for a few
/// turns.
static Status deriveInTurns(Searcher &searcher, Workers &workers, const Graph &graph,
                            Scorer &scorer, std::vector<Candidate> winners,
                            std::vector<Candidate> contexts, const DeriveLimits &limits,
                            const OverlapPins &pins, DerivedCandidates &derived,
                            Exploration &exploration) {
  constexpr int mostTurns = 4; // in a large graph
  const bool isSmall = isSmallGraph(graph);
  for (int turn = 0;; ++turn) {
    const bool hasContexts = !isSmall && !contexts.empty();
    Result<std::vector<ExactCandidate>> exact = deriveBest(searcher, workers, graph,
                                                           isSmall       ? exploration.scored
                                                           : hasContexts ? contexts
                                                                         : winners,
                                                           limits, pins, derived);
    if (!exact)
      return exact.error();
    exploration.exact = std::move(*exact);
    if (hasContexts)
      if (Status status = deriveFaster(searcher, workers, graph, winners, limits, pins, derived,
                                       exploration.exact);
          !status)
        return status;
    contexts.clear();
    const bool hasFit = exploration.hasFit(limits.goal);
    const bool wasRight = scorer.correct(derived, limits);
    if (wasRight || limits.deadline.isOver() || (!isSmall && (hasFit || turn + 1 == mostTurns)))
      return Status::ok();
    if (!scorer.scoreMore(hasFit ? exploration.exact.front().plan.prediction.stepSeconds
                                 : INFINITY))
      return Status::ok();
    winners = scorer.winners();
  }
}

/// Returns the seconds of the fastest scored candidate that fits.
static double fastestScored(const Exploration &exploration) {
  double fastest = INFINITY;
  for (const Candidate &candidate : exploration.scored)
    if (candidate.feasible)
      fastest = std::min(fastest, candidate.seconds);
  return fastest;
}

namespace {

/// One pass over the search space, in steps.
class Explorer {
public:
  Explorer(const Graph &given, const Job &job, const Cluster &cluster, const Pins &asked, int top,
           Purpose purpose, const Progress &progress)
      : given(given), job(job), cluster(cluster), pins(asked), top(top), purpose(purpose),
        progress(progress), limits{cluster,
                                   asked.memoryLimitBytes.value_or(0),
                                   asked.memoryGoal,
                                   size_t(top),
                                   purpose == Purpose::Suggestion ? size_t(4) : size_t(16),
                                   pins.deadline},
        // Work ahead of use is often wasted.
        workers(purpose == Purpose::Suggestion ? 1 : asked.threads) {}

  Result<Exploration> run() {
    if (Status status = prepare(); !status)
      return status.error();
    if (Status status = enumerate(); !status)
      return status.error();
    if (candidates.empty() && searcher->end() == SearchEnd::Complete)
      return whyNone(*searcher, pins);
    exploration.end = searcher->end();
    if (candidates.empty())
      return std::move(exploration);
    exploration.leftOut = searcher->space.leftOut();
    exploration.numCandidates = int64_t(candidates.size());
    if (searcher->provesNothingFits()) {
      takeNearest();
      return std::move(exploration);
    }
    if (Status status = findBest(); !status)
      return status.error();
    if (Status status = addRunnersUp(); !status)
      return status.error();
    if (exploration.hasFit(limits.goal) && isAnswer())
      prove();
    preferSimplest(exploration.exact, limits.goal, isAnswer() ? pins.tie : 0);
    exploration.counts = searcher->counts.now();
    exploration.counts.boundSeconds = boundSeconds;
    exploration.counts.scoreSeconds = scoreSeconds;
    exploration.counts.deriveSeconds = deriveSeconds;
    exploration.counts.proofSeconds = watch.lap();
    return std::move(exploration);
  }

private:
  bool isAnswer() const { return purpose == Purpose::Answer; }

  /// Finds the space of decisions, and refuses a job or pins that no candidate can have.
  Status prepare() {
    // Work on pairs of samples is quadratic in the batch, and linear in its part on a rank: bounds
    // are per sample of the whole batch.
    const int meeting = firstMeeting(given);
    if (meeting >= 0)
      whole = withBatch(given, job.globalBatch);
    const Executor &executor = executorOf(cluster);
    Result<PinnedOps> made = PinnedOps::make(graph(), job, pins.ops, executor.tensorParallel);
    if (!made)
      return made.error();
    pinned = std::move(*made);
    if (pinned->splitter) // the others are excluded before scoring
      pins.conditions.push_back(
          {mesh::row(Axis::Tensor).name, "1", true, toString(*pinned->splitter)});
    Result<Space> possible = Space::make(
        job, pins, commonExperts(graph()), meeting < 0 ? "" : graph().ops[size_t(meeting)].id,
        executor.plans, ExecutorSizes::make(graph(), job, executor, pinned->followsLayout));
    if (!possible)
      return possible.error();
    space = std::move(*possible);
    if (Status status =
            checkDevices(cluster, job, space->meshIsPinned() ? &space->pinnedMesh() : nullptr);
        !status)
      return status;
    if (Status status = checkBytes(graph(), job); !status)
      return status;
    if (Status status = checkRates(graph(), cluster); !status)
      return status;
    return checkContext(graph(), *space, pins);
  }

  /// Finds the candidates, in the order of their bounds.
  Status enumerate() {
    watch.lap();
    planned = limits.goal == MemoryVerdict::Fits ? atUpperEnd(cluster) : cluster;
    searcher.emplace(graph(), job, planned, *space, limits.limitBytes(cluster), *pinned, workers);
    candidates = searcher->enumerate(pins);
    boundSeconds = watch.lap();
    if (Status status = keepBegun(candidates, *pinned); !status)
      return status;
    return checkBlocks(*space, pins, searcher->problem.numBlocks());
  }

  /// Takes the nearest candidates as the answer that no plan fits.
  void takeNearest() {
    exploration.provesNothingFits = true;
    exploration.leastBytes = searcher->bounder.leastBytesOfAll();
    if (limits.goal != MemoryVerdict::Fits)
      exploration.exact = nearestOf(*searcher, graph(), candidates, limits, space->overlap());
    exploration.counts = searcher->counts.now();
  }

  /// Scores the candidates left by the bounds, and derives the best.
  Status findBest() {
    if (isAnswer())
      std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(hopelessDdp),
                   [&](const Candidate &candidate) {
                     return familyOf(candidate).isDdp() && searcher->bounder.isHopeless(candidate);
                   });
    dropped = dropHopeless(*searcher, candidates, isAnswer() ? mostHopeless : 0);
    exploration.lowerBoundSeconds = std::min(leastBound(candidates), leastBound(dropped));
    if (searcher->end() != SearchEnd::Complete)
      exploration.lowerBoundSeconds =
          std::min(exploration.lowerBoundSeconds, peakRateSeconds(searcher->problem));
    // Small graphs are cheap enough to score exhaustively.
    const Scorer::Settings settings{pins, top, purpose, isSmallGraph(graph()), progress};
    Scorer scorer(*searcher, workers, candidates, exploration, settings);
    DerivedCandidates derived;
    auto exactSeconds = [&](std::vector<Candidate> scored) {
      DeriveLimits one = limits;
      one.top = one.most = 1;
      Result<std::vector<ExactCandidate>> exact = deriveBest(
          *searcher, workers, graph(), std::move(scored), one, space->overlap(), derived);
      const bool fits =
          exact && !exact->empty() && exact->front().plan.prediction.meets(limits.goal);
      return fits ? exact->front().plan.prediction.stepSeconds : INFINITY;
    };
    ScoredCandidates best =
        scoreAll(*searcher, workers, candidates, settings, exactSeconds, exploration, scorer);
    if (Status status = checkWinners(best.winners); !status)
      return status;
    scoreSeconds = watch.lap();
    Status status =
        deriveInTurns(*searcher, workers, graph(), scorer, std::move(best.winners),
                      std::move(best.all), limits, space->overlap(), derived, exploration);
    deriveSeconds = watch.lap();
    return status;
  }

  /// Refuses a question without a winner, if a pin is the reason.
  Status checkWinners(const std::vector<Candidate> &winners) const {
    if (!winners.empty())
      return Status::ok();
    for (const Candidate &candidate : candidates)
      if (const std::string &why = searcher->costs.models.refusedContext(candidate); !why.empty())
        return Error{ErrorCode::Usage, why};
    if (const std::string why = whyNoSizes(searcher->problem, pins); !why.empty())
      return Error{ErrorCode::Usage, why};
    if (pinned->splitter && exploration.end == SearchEnd::Complete)
      return Error{ErrorCode::Usage,
                   toString(*pinned->splitter) +
                       ": no mesh has an axis tp that divides all that is pinned to be split; "
                       "choose another tp, or pin less"};
    return Status::ok();
  }

  /// Derives the best candidates of the families that the answer is compared with.
  Status addRunnersUp() {
    std::vector<Candidate> ofFamilies;
    if (isAnswer() && exploration.hasFit(limits.goal))
      ofFamilies = bestOfFamilies(
          *searcher,
          {candidates, hopelessDdp, exploration.scored, fastestScored(exploration), pins.tie, top},
          pins.deadline);
    const double tieSeconds = fastestScored(exploration) * (1 + pins.tie);
    return addFamilies(*searcher, graph(), std::move(ofFamilies), tieSeconds, size_t(top), limits,
                       space->overlap(), exploration);
  }

  /// Tightens the bound of all plans, and finds the cost of the memory margin.
  void prove() {
    if (searcher->end() == SearchEnd::Complete)
      exploration.lowerBoundSeconds =
          refineBounds(*searcher, workers, candidates, dropped,
                       exploration.exact.front().plan.prediction.stepSeconds, pins.deadline);
    if (limits.goal == MemoryVerdict::Fits && exploration.end == SearchEnd::Complete)
      exploration.tight =
          withoutMargin(graph(), job, *space, *pinned, workers, limits, exploration);
  }

  const Graph &graph() const { return whole ? *whole : given; }

  const Graph &given;
  std::optional<Graph> whole; // with the whole batch, if samples meet
  const Job &job;
  const Cluster &cluster;
  Cluster planned;
  Pins pins;
  const int top;
  const Purpose purpose;
  const Progress &progress;
  const DeriveLimits limits;
  Workers workers;
  std::optional<PinnedOps> pinned;
  std::optional<Space> space;
  std::optional<Searcher> searcher;
  std::vector<Candidate> candidates, dropped, hopelessDdp;
  Stopwatch watch;
  double boundSeconds = 0, scoreSeconds = 0, deriveSeconds = 0;
  Exploration exploration;
};

} // namespace

Result<Exploration> explore(const Graph &given, const Job &job, const Cluster &cluster,
                            const Pins &asked, int top, Purpose purpose, const Progress &progress) {
  return Explorer(given, job, cluster, asked, top, purpose, progress).run();
}

} // namespace tbc::planner
