//===- LookAhead.cpp - Parallel scoring of candidates ahead of use --------===//

#include "planner/search/LookAhead.h"

#include <algorithm>
#include <cmath>

namespace tbc::planner {

void LookAhead::remember(const Candidate &candidate) {
  TwinScores &known = twins[twinsOf(candidate)];
  const RecomputeMode mode = candidate.recompute;
  if (mode == RecomputeMode::None) {
    known.fitsUnforced = candidate.feasible;
    known.unforced = candidate.feasible ? 0 : candidate.seconds;
  }
  if (!candidate.feasible)
    known.fitsNot = std::max(mode, known.fitsNot.value_or(mode));
  else if (known.fitsNot == mode)
    known.fitsNot.reset();
}

/// Whether the scores of candidates that differ from `candidate` by recomputation make it needless:
/// - one without forced recomputation fits: its derivation adds recomputation if it has to;
/// - one with more recomputation does not fit;
/// - the one without forced recomputation does not fit, and takes clearly longer than `limit`. It
///   has the cuts with the shortest longest stage, and recomputation makes no stage shorter. Other
///   cuts are better by less than the margin. Example: it takes 5.3 s, and the limit is 3.9 s.
/// Small graphs are scored exhaustively.
bool LookAhead::isNeedless(const Candidate &candidate, double limit) const {
  constexpr double margin = 1.03;
  if (refine || candidate.recompute == RecomputeMode::None)
    return false;
  auto found = twins.find(twinsOf(candidate));
  if (found == twins.end())
    return false;
  const TwinScores &known = found->second;
  return known.fitsUnforced || known.unforced > margin * limit ||
         (known.fitsNot && *known.fitsNot > candidate.recompute);
}

bool LookAhead::isRuledOut(size_t i, double limit) {
  constexpr size_t farPerThread = 4; // some work ahead is wasted
  if (i >= lookedUntil || limit != lookedLimit)
    look(i, farPerThread * size_t(workers.count()), limit);
  return isNeedless(candidates[i], limit) ||
         (std::isfinite(limit) &&
          searcher.bounder.refined(candidates[i], limit, BoundMeshes::Own) >= limit);
}

bool LookAhead::score(size_t i) {
  auto known = scored.find(i);
  bool isPossible = false;
  if (known == scored.end()) {
    isPossible = searcher.pricer.score(candidates[i], refine);
  } else {
    isPossible = known->second.isPossible;
    candidates[i] = std::move(known->second.candidate);
    scored.erase(known);
  }
  if (isPossible)
    remember(candidates[i]);
  return isPossible;
}

/// Scores up to `number` candidates from `begin` on all threads, except those excluded by their
/// bounds.
void LookAhead::look(size_t begin, size_t number, double limit) {
  lookedLimit = limit;
  lookedUntil = std::min(candidates.size(), begin + number);
  if (workers.count() == 1)
    return; // a single thread does not look ahead
  std::vector<size_t> next;
  for (size_t i = begin; i < lookedUntil && candidates[i].lowerBound <= limit; ++i)
    next.push_back(i);
  if (std::isfinite(limit)) {
    std::vector<double> bounds(next.size());
    workers.run(next.size(), [&](size_t k) {
      bounds[k] = searcher.bounder.refinedAhead(candidates[next[k]], limit, BoundMeshes::Own);
    });
    std::vector<size_t> left;
    for (size_t k = 0; k < next.size(); ++k)
      if (bounds[k] < limit)
        left.push_back(next[k]);
    next = std::move(left);
  }
  // Those without forced recomputation first: they make many others needless.
  std::vector<size_t> first, rest;
  for (size_t i : next)
    (candidates[i].recompute == RecomputeMode::None ? first : rest).push_back(i);
  scoreAhead(first);
  rest.erase(std::remove_if(rest.begin(), rest.end(),
                            [&](size_t i) { return isNeedless(candidates[i], limit); }),
             rest.end());
  scoreAhead(rest);
}

void LookAhead::scoreAhead(const std::vector<size_t> &indices) {
  std::vector<const Candidate *> unknown;
  std::vector<Scored *> places;
  for (size_t i : indices)
    if (auto [found, isNew] = scored.try_emplace(i); isNew) {
      found->second.candidate = candidates[i];
      unknown.push_back(&candidates[i]);
      places.push_back(&found->second);
    }
  searcher.costs.models.prepare(unknown, workers);
  workers.run(places.size(), [&](size_t k) {
    places[k]->isPossible = searcher.pricer.score(places[k]->candidate, refine);
  });
  for (const Scored *place : places)
    if (place->isPossible)
      remember(place->candidate);
}

} // namespace tbc::planner
