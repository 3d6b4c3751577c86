//===- Contexts.cpp - Candidates with context parallelism -----------------===//

#include "planner/search/Contexts.h"
#include "planner/search/CandidateBound.h"
#include "planner/search/LeastMemory.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

namespace tbc::planner {

/// Scores the variants of the best meshes without cp. Keeps the first of each group.
static void scoreNearWinners(Searcher &searcher, Workers &workers, const Scorer::Settings &settings,
                             Exploration &exploration, std::vector<Candidate> &winners) {
  constexpr size_t mostMeshes = 4;
  std::vector<Candidate> asked, found;
  for (size_t i = 0; i < winners.size() && i < mostMeshes; ++i)
    for (Candidate &candidate : searcher.space.withContext(winners[i]))
      asked.push_back(candidate);
  searcher.bounder.boundTime(asked, settings.pins.deadline);
  LookAhead ahead(searcher, workers, asked, settings.isSmall);
  ahead.scoreAll();
  int order = int(exploration.numCandidates);
  for (size_t i = 0; i < asked.size(); ++i) {
    bool isKnown = std::any_of(found.begin(), found.end(), [&](const Candidate &other) {
      return groupOf(other) == groupOf(asked[i]);
    });
    if (isKnown || !ahead.score(i))
      continue;
    asked[i].order = order++;
    exploration.scored.push_back(asked[i]);
    found.push_back(asked[i]);
  }
  winners.insert(winners.end(), found.begin(), found.end());
  std::sort(winners.begin(), winners.end(),
            [](const Candidate &a, const Candidate &b) { return isBetter(a, b); });
}

/// Returns the variants with cp of `candidates` that may take less than `limit` seconds, in the
/// order of their bounds. Their `order` begins with `firstOrder`.
static std::vector<Candidate> openContexts(Searcher &searcher,
                                           const std::vector<Candidate> &candidates,
                                           const std::vector<Candidate> &scored, double limit,
                                           int firstOrder, const Deadline &deadline) {
  auto keyOf = [](const Candidate &candidate) {
    return std::make_tuple(twinsOf(candidate), candidate.recompute);
  };
  std::set<decltype(keyOf(Candidate()))> known;
  for (const Candidate &candidate : scored)
    if (candidate.mesh.cp > 1)
      known.insert(keyOf(candidate));
  std::vector<Candidate> variants, open;
  for (const Candidate &candidate : candidates)
    if (candidate.provenBound < limit && mayBeContext(searcher.problem, candidate))
      for (Candidate &variant : searcher.space.withContextOfTensors(candidate))
        variants.push_back(std::move(variant));
  searcher.bounder.boundTime(variants, deadline);
  const double limitBytes = double(searcher.problem.limitBytes);
  for (const Candidate &variant : variants)
    if (variant.lowerBound < limit && leastBytes(searcher.boundTables, variant) <= limitBytes)
      for (Candidate &inForm : searcher.space.inEveryForm(variant))
        if (!known.count(keyOf(inForm)))
          open.push_back(std::move(inForm));
  for (Candidate &candidate : open)
    candidate.order = firstOrder++;
  // As Searcher::enumerate.
  std::sort(open.begin(), open.end(), [](const Candidate &a, const Candidate &b) {
    auto key = [](const Candidate &of) {
      return std::make_tuple(of.lowerBound, of.recompute == RecomputeMode::Selective, of.order);
    };
    return key(a) < key(b);
  });
  return open;
}

std::vector<Candidate> addContexts(Searcher &searcher, Workers &workers,
                                   const std::vector<Candidate> &candidates,
                                   const Scorer::Settings &settings, Exploration &exploration,
                                   std::vector<Candidate> &winners) {
  constexpr double worthwhile = 1.05;
  if (!winners.empty() && winners[0].feasible &&
      winners[0].seconds <= worthwhile * exploration.lowerBoundSeconds)
    return {};
  const size_t before = exploration.scored.size();
  scoreNearWinners(searcher, workers, settings, exploration, winners);
  if (winners.empty() || !winners[0].feasible || settings.pins.deadline.isOver())
    return {};
  const int firstOrder = int(exploration.numCandidates + exploration.scored.size() - before);
  std::vector<Candidate> open =
      openContexts(searcher, candidates, exploration.scored, winners[0].seconds, firstOrder,
                   settings.pins.deadline);
  Scorer scorer(searcher, workers, open, exploration, settings);
  scorer.rankAll();
  return scorer.scoreMore(winners[0].seconds) ? scorer.winners() : std::vector<Candidate>();
}

} // namespace tbc::planner
