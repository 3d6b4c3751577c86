//===- Contexts.h - Candidates with context parallelism -------------------===//

#ifndef TBC_PLANNER_SEARCH_CONTEXTS_H
#define TBC_PLANNER_SEARCH_CONTEXTS_H

#include "planner/search/Scorer.h"

#include <functional>
#include <vector>

namespace tbc::planner {

/// The best scored candidate of each group (groupOf), the best first.
struct ScoredCandidates {
  std::vector<Candidate> winners; ///< without cp, or with cp near these
  std::vector<Candidate> all;     ///< of all groups, if others with cp were scored; else empty
};

/// Derives the best of some scored candidates. Returns its seconds; infinite if it does not fit.
using ExactSeconds = std::function<double(std::vector<Candidate>)>;

/// Scores `candidates` by `scorer`, and candidates with context parallelism (cp), which are not
/// listed. All go to `exploration.scored`. Those with cp are scored only if the best other one is
/// not near its bound.
///
/// Of these, first come the variants of the best meshes without cp. Their times limit what follows:
/// the variants of all `candidates` in the order of their bounds, as the candidates themselves are
/// scored. Each variant is first in one form, and in the others only if it comes near the best.
/// Example: the best plan without cp has tp=8 and takes 21 s. A variant of pp=64 tp=16, which is
/// slow itself, has cp=8 and tp=2 and takes 18 s.
///
/// If there are many candidates, those with cp come after the first of them, because a plan with cp
/// may exclude most of the others. Scores with cp have other errors, so its `exactSeconds` count.
/// Example: the first 512 of 154,000 candidates take at least 21 s, a plan with cp takes 17.6 s,
/// and of the others only 700 have a bound near that.
ScoredCandidates scoreAll(Searcher &searcher, Workers &workers,
                          const std::vector<Candidate> &candidates,
                          const Scorer::Settings &settings, const ExactSeconds &exactSeconds,
                          Exploration &exploration, Scorer &scorer);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_CONTEXTS_H
