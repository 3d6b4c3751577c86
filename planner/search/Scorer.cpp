//===- Scorer.cpp - Scoring of candidates in the order of their bounds ------===//

#include "planner/search/Scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tbc::planner {

/// Number of candidates scored even after the deadline, until one fits.
constexpr int64_t leastScored = 64;

/// Whether `candidate` cannot fit if `other` does not: it differs only by a larger micro-batch and
/// weaker recomputation.
static bool isWorseThan(const Candidate &other, const Candidate &candidate) {
  return other.mesh == candidate.mesh && other.zero == candidate.zero &&
         other.microBatch <= candidate.microBatch && other.recompute >= candidate.recompute;
}

/// Whether a scored candidate shows that `candidate` does not fit. Only suggestions trust this.
bool Scorer::cannotFit(const Candidate &candidate) const {
  return settings.purpose == Purpose::Suggestion &&
         std::any_of(exploration.scored.begin(), exploration.scored.end(),
                     [&](const Candidate &other) {
                       return !other.feasible && isWorseThan(other, candidate);
                     });
}

/// Compares a scored candidate with the others of its group.
void Scorer::rank(size_t scoredIndex) {
  const Candidate &candidate = exploration.scored[scoredIndex];
  auto [found, isNew] = best.emplace(groupOf(candidate), scoredIndex);
  const Candidate &leader = exploration.scored[found->second];
  if (!isNew && !isBetter(candidate, leader))
    return;
  if (!isNew && leader.feasible)
    fastest.erase(std::lower_bound(fastest.begin(), fastest.end(), leader.seconds));
  if (candidate.feasible)
    fastest.insert(std::upper_bound(fastest.begin(), fastest.end(), candidate.seconds),
                   candidate.seconds);
  found->second = scoredIndex;
}

/// Returns the seconds that a candidate of a new group has to beat: those of the `top`-th group, or
/// of the fastest with a margin for the error of scores, whichever is less. Small graphs are scored
/// without that margin.
double Scorer::limitSeconds() const {
  if (int(fastest.size()) < settings.top)
    return INFINITY;
  constexpr double leastMargin = 0.05;
  const double last = fastest[size_t(settings.top) - 1];
  return settings.isSmall
             ? last
             : std::min(last, fastest[0] * (1 + std::max(leastMargin, settings.pins.tie)));
}

/// Scores candidate `index` unless a bound excludes it. Returns whether it did.
bool Scorer::scoreNext(size_t index, double limit) {
  if (cannotFit(candidates[index]))
    return false;
  if (ahead.isRuledOut(index, limit)) {
    ruledOut.push_back(index);
    return false;
  }
  ++exploration.numScored;
  if (!ahead.score(index))
    return false;
  exploration.scored.push_back(candidates[index]);
  rank(exploration.scored.size() - 1);
  return true;
}

bool Scorer::scoreMore(double seconds, int64_t most) {
  bool any = false;
  pauses = false;
  const int64_t before = exploration.numScored;
  std::vector<size_t> earlier = std::exchange(ruledOut, {});
  for (size_t turn = 0; turn < earlier.size() + candidates.size() - next;) {
    const bool isEarlier = turn < earlier.size();
    const size_t index = isEarlier ? earlier[turn] : next;
    if (settings.progress)
      settings.progress(int64_t(index), int64_t(candidates.size()));
    const double limit = std::min(seconds, limitSeconds());
    // A late answer is better than no answer: score some candidates regardless of the time.
    const bool isLate = settings.pins.deadline.isOver() &&
                        (!fastest.empty() || exploration.numScored >= leastScored);
    const bool isBeyond = candidates[index].lowerBound > limit; // and all later ones too
    pauses = !isBeyond && exploration.numScored - before >= most;
    if (!isBeyond && (isLate || exploration.numScored >= settings.pins.budget.scored))
      exploration.end = isLate ? SearchEnd::TimeLimit : SearchEnd::Budget;
    if (isBeyond || isLate || pauses || exploration.numScored >= settings.pins.budget.scored) {
      ruledOut.insert(ruledOut.end(), earlier.begin() + int64_t(std::min(turn, earlier.size())),
                      earlier.end());
      return any;
    }
    any |= scoreNext(index, limit);
    isEarlier ? ++turn : ++next;
  }
  return any;
}

bool Scorer::correct(const DerivedCandidates &derived, const DeriveLimits &limits) {
  bool wasRight = true;
  for (Candidate &candidate : exploration.scored) {
    auto found = derived.find(candidate.order);
    if (found == derived.end())
      continue;
    const Prediction &prediction = found->second.plan.prediction;
    const bool fits = prediction.meets(limits.goal);
    if (candidate.feasible == fits)
      continue;
    wasRight = false;
    candidate.feasible = fits;
    candidate.peakBytes =
        double(limits.goal == MemoryVerdict::Fits ? prediction.highBytes : prediction.peakBytes);
    ahead.correct(candidate);
  }
  rankAll();
  return wasRight;
}

void Scorer::rankAll() {
  best.clear();
  fastest.clear();
  for (size_t i = 0; i < exploration.scored.size(); ++i)
    rank(i);
}

std::vector<Candidate> Scorer::winners() const {
  std::vector<Candidate> result;
  for (const auto &[group, index] : best)
    result.push_back(exploration.scored[index]);
  std::sort(result.begin(), result.end(),
            [](const Candidate &a, const Candidate &b) { return isBetter(a, b); });
  return result;
}

} // namespace tbc::planner
