//===- Contexts.h - Candidates with context parallelism -------------------===//

#ifndef TBC_PLANNER_SEARCH_CONTEXTS_H
#define TBC_PLANNER_SEARCH_CONTEXTS_H

#include "planner/search/Scorer.h"

#include <vector>

namespace tbc::planner {

/// Scores candidates with context parallelism (cp), which are not listed, and adds them to
/// `exploration.scored`. Does so only if the best winner is not near its bound.
///
/// First come the variants of the best meshes without cp, and join `winners`. Their times limit
/// what follows: the variants of all `candidates` in the order of their bounds, as the candidates
/// themselves were scored. If any of these is scored, returns the best of all groups, else an empty
/// list. Example: the best plan without cp has tp=8 and takes 21 s. A variant of pp=64 tp=16, which
/// is slow itself, has cp=8 and tp=2 and takes 18 s.
std::vector<Candidate> addContexts(Searcher &searcher, Workers &workers,
                                   const std::vector<Candidate> &candidates,
                                   const Scorer::Settings &settings, Exploration &exploration,
                                   std::vector<Candidate> &winners);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_CONTEXTS_H
