//===- Scorer.h - Scoring of candidates in the order of their bounds ------===//

#ifndef TBC_PLANNER_SEARCH_SCORER_H
#define TBC_PLANNER_SEARCH_SCORER_H

#include "planner/search/CandidateOrder.h"
#include "planner/search/DeriveBest.h"
#include "planner/search/Explore.h"
#include "planner/search/LookAhead.h"

#include <limits>
#include <map>
#include <vector>

namespace tbc::planner {

/// Scores a list of candidates in the order of their bounds, with pauses in which the best of them
/// are derived.
///
/// It pauses at the first candidate whose bound exceeds the `top`-th fastest group with a fitting
/// candidate. Scores of memory have an error, so some of these may not fit when they are derived.
/// After correct(), scoreMore() scores the candidates that compete with the others. Example with
/// top = 1: the fastest candidate has a score of 34.0 KiB and a limit of 35.0 KiB. Its derivation
/// takes 36.1 KiB, so scoring goes on with slower candidates.
class Scorer {
public:
  struct Settings {
    const Pins &pins;
    int top;
    Purpose purpose;
    bool isSmall; ///< as LookAhead's `refine`
    const Progress &progress;
  };

  /// `candidates`: by bound, the least first. Scored ones are appended to `exploration.scored`.
  Scorer(Searcher &searcher, Workers &workers, std::vector<Candidate> &candidates,
         Exploration &exploration, const Settings &settings)
      : candidates(candidates), exploration(exploration), settings(settings),
        ahead(searcher, workers, candidates, settings.isSmall) {}

  /// Scores until no other candidate can be among the best `top` and take less than `seconds`, or
  /// the budget or time is over, or `most` are scored. Returns whether it scored any.
  bool scoreMore(double seconds = std::numeric_limits<double>::infinity(),
                 int64_t most = std::numeric_limits<int64_t>::max());
  /// Whether the last call of scoreMore() ended because of `most`.
  bool isPaused() const { return pauses; }

  /// Corrects the feasibility and the bytes of scored candidates with another verdict in `derived`.
  /// Returns whether all verdicts of the scores were right.
  bool correct(const DerivedCandidates &derived, const DeriveLimits &limits);

  /// Compares all candidates of `exploration.scored`, also those that others scored.
  void rankAll();

  /// Returns the best scored candidate of each group (groupOf), the best first.
  std::vector<Candidate> winners() const;

private:
  using Group = decltype(groupOf(Candidate()));

  bool scoreNext(size_t index, double limit);
  void rank(size_t scoredIndex);
  double limitSeconds() const;
  bool cannotFit(const Candidate &candidate) const;

  std::vector<Candidate> &candidates;
  Exploration &exploration;
  const Settings settings;
  LookAhead ahead;
  bool pauses = false;          // the last scoreMore() ended because of `most`
  size_t next = 0;              // the first candidate without a turn
  std::vector<size_t> ruledOut; // before it: those excluded by an earlier limit
  std::map<Group, size_t> best; // of each group, into exploration.scored
  std::vector<double> fastest;  // of the groups with a fitting candidate, ascending
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SCORER_H
