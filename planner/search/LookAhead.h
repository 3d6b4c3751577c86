//===- LookAhead.h - Parallel scoring of candidates ahead of use ----------===//

#ifndef TBC_PLANNER_SEARCH_LOOKAHEAD_H
#define TBC_PLANNER_SEARCH_LOOKAHEAD_H

#include "planner/search/CandidateOrder.h"
#include "planner/search/Searcher.h"
#include "planner/support/Workers.h"

#include <limits>
#include <map>
#include <optional>
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

  /// Whether candidate `i` takes at least `limit` seconds by Bounder::refined, or its twins make it
  /// needless (isNeedless). The bound is not asked with an infinite limit. Also looks ahead at
  /// later candidates whose lowerBound is below the limit.
  bool isRuledOut(size_t i, double limit);

  /// Calls Pricer::score on candidate `i` of the list.
  bool score(size_t i);

  /// Records the verdict of a candidate's derivation, which may differ from that of its score.
  void correct(const Candidate &candidate) { remember(candidate); }

  /// Scores the whole list ahead.
  void scoreAll() { look(0, candidates.size(), std::numeric_limits<double>::infinity()); }

private:
  struct Scored {
    Candidate candidate;
    bool isPossible = false;
  };
  /// The scores of twins.
  struct TwinScores {
    bool fitsUnforced = false;            // without forced recomputation
    double unforced = 0;                  // its seconds, if it does not fit
    std::optional<RecomputeMode> fitsNot; // the strongest mode that does not
  };
  void look(size_t begin, size_t number, double limit);
  void scoreAhead(const std::vector<size_t> &indices);
  void remember(const Candidate &candidate);
  bool isNeedless(const Candidate &candidate, double limit) const;

  Searcher &searcher;
  Workers &workers;
  std::vector<Candidate> &candidates;
  const bool refine;
  std::map<size_t, Scored> scored; // not requested yet
  std::map<decltype(twinsOf(Candidate())), TwinScores> twins;
  size_t lookedUntil = 0;
  double lookedLimit = 0;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_LOOKAHEAD_H
