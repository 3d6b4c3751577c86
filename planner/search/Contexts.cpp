//===- Contexts.cpp - Candidates with context parallelism -----------------===//

#include "planner/search/Contexts.h"
#include "planner/search/CandidateBound.h"
#include "planner/search/LeastMemory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace tbc::planner {

/// Identifies a candidate, whatever its order.
static auto keyOf(const Candidate &candidate) {
  return std::make_tuple(twinsOf(candidate), candidate.recompute);
}
using Keys = std::map<decltype(keyOf(Candidate())), size_t>;

/// Returns the scored candidates with cp, as indices into `exploration.scored`.
static Keys scoredContexts(const Exploration &exploration) {
  Keys known;
  for (size_t i = 0; i < exploration.scored.size(); ++i)
    if (exploration.scored[i].mesh.cp > 1)
      known.emplace(keyOf(exploration.scored[i]), i);
  return known;
}

/// Scores the variants of the best meshes without cp, and adds them to `winners`. Keeps the first
/// of each group.
static void scoreNearWinners(Searcher &searcher, Workers &workers, const Scorer::Settings &settings,
                             Exploration &exploration, int &order,
                             std::vector<Candidate> &winners) {
  constexpr size_t mostMeshes = 4;
  const Keys known = scoredContexts(exploration);
  std::vector<Candidate> asked, found;
  auto isFound = [&](const Candidate &candidate) {
    return std::any_of(found.begin(), found.end(), [&](const Candidate &other) {
      return groupOf(other) == groupOf(candidate);
    });
  };
  for (size_t i = 0; i < winners.size() && i < mostMeshes; ++i)
    for (Candidate &candidate : searcher.space.withContext(winners[i])) {
      auto scored = known.find(keyOf(candidate));
      if (scored == known.end())
        asked.push_back(std::move(candidate));
      else if (!isFound(candidate))
        found.push_back(exploration.scored[scored->second]);
    }
  searcher.bounder.boundTime(asked, settings.pins.deadline);
  LookAhead ahead(searcher, workers, asked, settings.isSmall);
  ahead.scoreAll();
  for (size_t i = 0; i < asked.size(); ++i) {
    if (isFound(asked[i]) || !ahead.score(i))
      continue;
    asked[i].order = order++;
    exploration.scored.push_back(asked[i]);
    found.push_back(asked[i]);
  }
  winners.insert(winners.end(), found.begin(), found.end());
  std::sort(winners.begin(), winners.end(),
            [](const Candidate &a, const Candidate &b) { return isBetter(a, b); });
}

/// Numbers `open` from `order` on, and sorts by bound.
static void putInOrder(std::vector<Candidate> &open, int &order) {
  for (Candidate &candidate : open)
    candidate.order = order++;
  // As Searcher::enumerate.
  std::sort(open.begin(), open.end(), [](const Candidate &a, const Candidate &b) {
    auto key = [](const Candidate &of) {
      return std::make_tuple(of.lowerBound, of.recompute == RecomputeMode::Selective, of.order);
    };
    return key(a) < key(b);
  });
}

/// Returns the variants with cp of `candidates` that may take less than `limit` seconds, each in
/// its first form.
static std::vector<Candidate> openContexts(Searcher &searcher,
                                           const std::vector<Candidate> &candidates,
                                           const Keys &known, double limit,
                                           const Deadline &deadline) {
  std::vector<Candidate> variants, open;
  for (const Candidate &candidate : candidates)
    if (candidate.provenBound < limit && mayBeContext(searcher.problem, candidate))
      for (Candidate &variant : searcher.space.withContextOfTensors(candidate))
        variants.push_back(std::move(variant));
  searcher.bounder.boundTime(variants, deadline);
  const double limitBytes = double(searcher.problem.limitBytes);
  for (const Candidate &variant : variants)
    if (variant.lowerBound < limit && leastBytes(searcher.boundTables, variant) <= limitBytes)
      for (Candidate &inForm : searcher.space.inForms(variant, /*most=*/1))
        if (!known.count(keyOf(inForm)))
          open.push_back(std::move(inForm));
  return open;
}

/// Returns the other forms of the candidates of `scored` from `begin` on that are not much worse
/// than a plan of `seconds`. Forms of one mesh have the same kernels, and differ in exchanges.
static std::vector<Candidate> otherForms(const Searcher &searcher,
                                         const std::vector<Candidate> &scored, size_t begin,
                                         double seconds, const Keys &known) {
  constexpr double mostGain = 0.15;
  std::vector<Candidate> others;
  for (size_t i = begin; i < scored.size(); ++i)
    if (scored[i].seconds * (1 - mostGain) <= seconds &&
        scored[i].peakBytes * (1 - mostGain) <= double(searcher.problem.limitBytes))
      for (Candidate &inForm : searcher.space.inForms(scored[i]))
        if (!known.count(keyOf(inForm)))
          others.push_back(std::move(inForm));
  return others;
}

/// Scores the variants with cp of `candidates` in the order of their bounds. Returns the number of
/// scored ones.
static size_t scoreVariants(Searcher &searcher, Workers &workers,
                            const std::vector<Candidate> &candidates,
                            const Scorer::Settings &settings, double limit,
                            Exploration &exploration, int &order) {
  const size_t begin = exploration.scored.size();
  auto score = [&](std::vector<Candidate> open) {
    putInOrder(open, order);
    Scorer scorer(searcher, workers, open, exploration, settings);
    scorer.rankAll();
    scorer.scoreMore(limit);
  };
  score(openContexts(searcher, candidates, scoredContexts(exploration), limit,
                     settings.pins.deadline));
  for (const Candidate &candidate : exploration.scored)
    limit = candidate.feasible ? std::min(limit, candidate.seconds) : limit;
  score(otherForms(searcher, exploration.scored, begin, limit, scoredContexts(exploration)));
  return exploration.scored.size() - begin;
}

/// Returns the best of each group of all scored candidates.
static std::vector<Candidate> bestOfAll(Searcher &searcher, Workers &workers,
                                        const Scorer::Settings &settings,
                                        Exploration &exploration) {
  std::vector<Candidate> none;
  Scorer scorer(searcher, workers, none, exploration, settings);
  scorer.rankAll();
  return scorer.winners();
}

ScoredCandidates scoreAll(Searcher &searcher, Workers &workers,
                          const std::vector<Candidate> &candidates,
                          const Scorer::Settings &settings, const ExactSeconds &exactSeconds,
                          Exploration &exploration, Scorer &scorer) {
  constexpr int64_t early = 512;
  const double worthwhile = 1 + std::max(0.02, settings.pins.tie);
  const Scorer::Settings ofContexts{settings.pins, settings.top, settings.purpose, settings.isSmall,
                                    /*progress=*/{}};
  int order = int(exploration.numCandidates);
  size_t numVariants = 0;
  ScoredCandidates best;
  auto addContexts = [&] {
    const Deadline &deadline = settings.pins.deadline;
    const std::vector<Candidate> &winners = best.winners;
    if (deadline.isOver() || (!winners.empty() && winners[0].feasible &&
                              winners[0].seconds <= worthwhile * exploration.lowerBoundSeconds))
      return;
    scoreNearWinners(searcher, workers, ofContexts, exploration, order, best.winners);
    if (numVariants == 0 && !winners.empty() && winners[0].feasible && !deadline.isOver())
      numVariants = scoreVariants(searcher, workers, candidates, ofContexts, winners[0].seconds,
                                  exploration, order);
  };
  scorer.scoreMore(std::numeric_limits<double>::infinity(), early);
  best.winners = scorer.winners();
  if (scorer.isPaused()) {
    double limit = std::numeric_limits<double>::infinity();
    if (!best.winners.empty() && best.winners[0].feasible)
      addContexts();
    if (numVariants > 0)
      limit = worthwhile * exactSeconds(bestOfAll(searcher, workers, ofContexts, exploration));
    scorer.scoreMore(limit);
    best.winners = scorer.winners();
  }
  addContexts();
  if (numVariants > 0)
    best.all = bestOfAll(searcher, workers, ofContexts, exploration);
  return best;
}

} // namespace tbc::planner
