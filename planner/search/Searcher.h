//===- Searcher.h - The parts of one search -------------------------------===//

#ifndef TBC_PLANNER_SEARCH_SEARCHER_H
#define TBC_PLANNER_SEARCH_SEARCHER_H

#include "planner/search/Bounder.h"
#include "planner/search/CandidateSpace.h"
#include "planner/search/Pricer.h"

#include <vector>

namespace tbc::planner {

/// The parts of one search. `space` lists candidates, `bounder` excludes most of them by lower
/// bounds, and `pricer` scores the others. All share `costs`.
struct Searcher {
  Searcher(const reshard::Graph &graph, const Job &job, const Cluster &cluster, const Space &space,
           int64_t limitBytes, PinnedOps pinned, Workers &workers);
  Searcher(const Searcher &) = delete; // its parts refer to each other

  /// Returns every candidate with its lower bound, cheapest bound first, ties in order of
  /// enumeration, selective recomputation after the others. The budget and the deadline of `limits`
  /// may end it early (end()). If no plan fits, candidates have no bounds on time and are ordered
  /// by `leastBytes`.
  std::vector<Candidate> enumerate(const Pins &limits);
  /// Whether enumerate() ended early, and the reason.
  SearchEnd end() const { return howEnded; }
  /// Whether no plan fits: neither a listed candidate nor any other allowed by the pins.
  bool provesNothingFits() const { return nothingFits; }

  RunningCounts counts;
  const SearchProblem problem;
  const CostTables costs;
  const BoundTables boundTables;
  CandidateSpace space;
  Bounder bounder;
  const Pricer pricer;

private:
  SearchEnd howEnded = SearchEnd::Complete;
  bool nothingFits = false;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SEARCHER_H
