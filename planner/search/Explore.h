//===- Explore.h - One pass over the search space -------------------------===//

#ifndef TBC_PLANNER_SEARCH_EXPLORE_H
#define TBC_PLANNER_SEARCH_EXPLORE_H

#include "planner/search/Searcher.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

struct Exploration {
  /// By exact step time, ties in order of enumeration; fitting plans first.
  std::vector<ExactCandidate> exact;
  std::vector<Candidate> scored; // all scored candidates, in order of lower bounds
  double lowerBoundSeconds = 0;  // the least over all candidates
  /// If the best one fits: the best of the same configurations when memory is planned without its
  /// margin, if it is faster.
  std::optional<ExactCandidate> tight;
  /// Whether a bound proves that no plan fits. `exact` then has the nearest of the candidates with
  /// the least bounds, or is empty if the goal was Fits.
  bool provesNothingFits = false;
  double leastBytes = 0; // lower bound on the fullest device of any plan
  SearchEnd end = SearchEnd::Complete;
  int64_t numCandidates = 0, numScored = 0; // enumerated, and scored in their turn
  std::string leftOut;                      // the reason for omitted candidates, if numbers are too
                                            // large
  SearchCounts counts;

  /// Whether some plan has the verdict `goal` or a better one.
  bool hasFit(MemoryVerdict goal) const {
    return !exact.empty() && exact.front().plan.prediction.meets(goal);
  }
};

/// The purpose of an exploration.
enum class Purpose {
  Answer,     ///< the best plan, its runners-up and its bound
  Cost,       ///< the best plan only
  Suggestion, ///< a fitting plan near the best, within a small budget
};

/// Scores the candidates left by the bounds. Then derives the `top` best of different
/// configurations exactly, and more while the next might be better or no plan fits. "Fits" means
/// the verdict `pins.memoryGoal` or a better one.
Result<Exploration> explore(const reshard::Graph &graph, const Job &job, const Cluster &cluster,
                            const Pins &pins, int top, Purpose purpose,
                            const Progress &progress = {});

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_EXPLORE_H
