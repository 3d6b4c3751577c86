//===- LookAhead.h - Parallel scoring of candidates ahead of use ----------===//

#ifndef TBC_PLANNER_SEARCH_LOOKAHEAD_H
#define TBC_PLANNER_SEARCH_LOOKAHEAD_H

#include "planner/search/Searcher.h"
#include "planner/support/Workers.h"

#include <array>
#include <limits>
#include <map>
#include <tuple>
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

  /// Whether candidate `i` takes at least `limit` seconds: by Bounder::refined, or because it takes
  /// clearly longer even without forced recomputation (isSlowWithout). False with an infinite
  /// limit. Also looks ahead at later candidates whose lowerBound is below the limit.
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
  /// All decisions but recomputation.
  using Twins = std::tuple<std::array<int64_t, 6>, reshard::ContextForm, int, bool, int64_t,
                           ScheduleKind, int, bool>;
  static Twins twinsOf(const Candidate &candidate);
  void look(size_t begin, size_t number, double limit);
  void scoreAhead(const std::vector<size_t> &indices);
  void remember(const Candidate &candidate);
  bool isSlowWithout(const Candidate &candidate, double limit) const;

  Searcher &searcher;
  Workers &workers;
  std::vector<Candidate> &candidates;
  const bool refine;
  std::map<size_t, Scored> scored;  // not requested yet
  std::map<Twins, double> unforced; // seconds without forced recomputation, if it does not fit so
  size_t lookedUntil = 0;
  double lookedLimit = 0;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_LOOKAHEAD_H
