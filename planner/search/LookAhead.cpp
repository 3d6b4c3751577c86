//===- LookAhead.cpp - Parallel scoring of candidates ahead of use --------===//

#include "planner/search/LookAhead.h"

#include <algorithm>
#include <cmath>

namespace tbc::planner {

bool LookAhead::isRuledOut(size_t i, double limit) {
  constexpr size_t farPerThread = 4; // some work ahead is wasted
  if (i >= lookedUntil || limit != lookedLimit)
    look(i, farPerThread * size_t(workers.count()), limit);
  return std::isfinite(limit) && searcher.bounder.refined(candidates[i], limit) >= limit;
}

bool LookAhead::score(size_t i) {
  auto known = scored.find(i);
  if (known == scored.end())
    return searcher.pricer.score(candidates[i], refine);
  bool isPossible = known->second.isPossible;
  candidates[i] = std::move(known->second.candidate);
  scored.erase(known);
  return isPossible;
}

/// Scores up to `number` candidates from `first` on all threads, except those excluded by their
/// bounds.
void LookAhead::look(size_t first, size_t number, double limit) {
  lookedLimit = limit;
  lookedUntil = std::min(candidates.size(), first + number);
  if (workers.count() == 1)
    return; // a single thread does not look ahead
  std::vector<size_t> next;
  for (size_t i = first; i < lookedUntil && candidates[i].lowerBound <= limit; ++i)
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
  std::vector<const Candidate *> unknown;
  std::vector<Scored *> places;
  for (size_t i : next)
    if (auto [found, isNew] = scored.try_emplace(i); isNew) {
      found->second.candidate = candidates[i];
      unknown.push_back(&candidates[i]);
      places.push_back(&found->second);
    }
  searcher.costs.models.prepare(unknown, workers);
  workers.run(places.size(), [&](size_t k) {
    places[k]->isPossible = searcher.pricer.score(places[k]->candidate, refine);
  });
}

} // namespace tbc::planner
