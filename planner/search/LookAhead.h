//===- LookAhead.h - Parallel scoring of candidates ahead of use ----------===//

#ifndef TBC_PLANNER_SEARCH_LOOKAHEAD_H
#define TBC_PLANNER_SEARCH_LOOKAHEAD_H

#include "planner/search/Searcher.h"
#include "planner/support/Workers.h"

#include <limits>
#include <map>
#include <vector>

namespace tbc::planner {

/// Scores candidates of a list on several threads, some before they are known to be needed. A
/// caller that requests one after another gets the same results as from the searcher itself. So the
/// result of a search does not depend on the number or speed of threads.
class LookAhead {
public:
  /// `refine`: as Pricer::score.
  LookAhead(Searcher &searcher, Workers &workers, std::vector<Candidate> &candidates, bool refine)
      : searcher(searcher), workers(workers), candidates(candidates), refine(refine) {}

  /// Whether Bounder::refined proves that candidate `i` takes at least `limit` seconds; false
  /// with an infinite limit. Also looks ahead at later candidates whose lowerBound is below the
  /// limit.
  bool isRuledOut(size_t i, double limit);

  /// Calls Pricer::score on candidate `i` of the list.
  bool score(size_t i);

  /// Scores the whole list ahead.
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
  std::map<size_t, Scored> scored; // not requested yet
  size_t lookedUntil = 0;
  double lookedLimit = 0;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_LOOKAHEAD_H
