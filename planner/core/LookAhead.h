//===- LookAhead.h - Scores of candidates that will be asked for -----------===//

#ifndef TBC_PLANNER_CORE_LOOKAHEAD_H
#define TBC_PLANNER_CORE_LOOKAHEAD_H

#include "planner/core/Searcher.h"
#include "planner/core/Workers.h"

#include <limits>
#include <map>
#include <vector>

namespace tbc::planner {

/// Scores candidates of a list on several threads, some before it is known whether they are needed.
/// Who asks for one after the other gets the answers that the searcher would give by itself, so
/// what a search finds does not depend on the number of threads, nor on how fast each is.
class LookAhead {
public:
  /// `refine`: as Searcher::score.
  LookAhead(Searcher &searcher, Workers &workers, std::vector<Candidate> &candidates, bool refine)
      : searcher(searcher), workers(workers), candidates(candidates), refine(refine) {}

  /// Whether no plan of candidate `i` takes less than `limit` by Searcher::refinedBound; with an
  /// infinite limit false. Looks ahead, at those that follow whose lowerBound allows it.
  bool isRuledOut(size_t i, double limit);

  /// Searcher::score of candidate `i`, in the list.
  bool score(size_t i);

  /// Scores all of the list ahead.
  void scoreAll() { look(0, candidates.size(), std::numeric_limits<double>::infinity()); }

private:
  struct Scored {
    Candidate candidate;
    bool isPossible = false;
  };
  void look(size_t first, size_t number, double limit);

  Searcher &searcher;
  Workers &workers;
  std::vector<Candidate> &candidates;
  const bool refine;
  std::map<size_t, Scored> scored; // not asked for yet
  size_t lookedUntil = 0;
  double lookedLimit = 0;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_LOOKAHEAD_H
