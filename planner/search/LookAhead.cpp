//===- LookAhead.cpp - Parallel scoring of candidates ahead of use --------===//

#include "planner/search/LookAhead.h"

#include <algorithm>
#include <cmath>

namespace tbc::planner {

LookAhead::Twins LookAhead::twinsOf(const Candidate &candidate) {
  const ScheduleChoice &of = candidate.schedule;
  return {candidate.mesh.sizes(),      candidate.context,    candidate.zero.zero,
          candidate.zero.keepGathered, candidate.microBatch, of.kind(),
          of.chunksPerStage,           of.thereAndBack};
}

void LookAhead::remember(const Candidate &candidate) {
  if (candidate.recompute == RecomputeMode::None && !candidate.feasible)
    unforced[twinsOf(candidate)] = candidate.seconds;
}

/// Whether the twin of `candidate` without forced recomputation takes clearly longer than `limit`.
/// The twin does not fit, so it has the cuts with the shortest longest stage, and recomputation
/// makes no stage shorter. Other cuts are better by less than the margin. Example: the twin takes
/// 5.3 s, and the limit is 3.9 s. Small graphs are scored exhaustively.
bool LookAhead::isSlowWithout(const Candidate &candidate, double limit) const {
  constexpr double margin = 1.03;
  if (refine || candidate.recompute == RecomputeMode::None)
    return false;
  auto twin = unforced.find(twinsOf(candidate));
  return twin != unforced.end() && twin->second > margin * limit;
}

bool LookAhead::isRuledOut(size_t i, double limit) {
  constexpr size_t farPerThread = 4; // some work ahead is wasted
  if (i >= lookedUntil || limit != lookedLimit)
    look(i, farPerThread * size_t(workers.count()), limit);
  return std::isfinite(limit) && (isSlowWithout(candidates[i], limit) ||
                                  searcher.bounder.refined(candidates[i], limit) >= limit);
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
      bounds[k] = searcher.bounder.refinedAhead(candidates[next[k]], limit);
    });
    std::vector<size_t> left;
    for (size_t k = 0; k < next.size(); ++k)
      if (bounds[k] < limit)
        left.push_back(next[k]);
    next = std::move(left);
  }
  // Those without forced recomputation first: many others are slow without it.
  std::vector<size_t> first, rest;
  for (size_t i : next)
    (candidates[i].recompute == RecomputeMode::None ? first : rest).push_back(i);
  scoreAhead(first);
  rest.erase(std::remove_if(rest.begin(), rest.end(),
                            [&](size_t i) { return isSlowWithout(candidates[i], limit); }),
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
