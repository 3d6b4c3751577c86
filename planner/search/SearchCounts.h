//===- SearchCounts.h - Counts of the work of a search --------------------===//

#ifndef TBC_PLANNER_SEARCH_SEARCHCOUNTS_H
#define TBC_PLANNER_SEARCH_SEARCHCOUNTS_H

#include <atomic>
#include <cstdint>
#include <functional>

namespace tbc::planner {

/// Counts of the work of a search. Work ahead on other threads counts when it is done. So with
/// several threads all counts but the first depend on timing; with one thread they are
/// reproducible.
struct SearchCounts {
  /// Complete candidates (mesh, micro-batch, ZeRO, schedule, recomputation) with a lower bound.
  int64_t bounded = 0;
  /// Candidates with strategies and stage cuts, priced in closed form for time and memory. Each
  /// other cut or share of recomputation counts as one more.
  int64_t priced = 0;
  /// Candidates derived op by op.
  int64_t derived = 0;
  /// Compared parts of candidates: strategies of an op beside its neighbours' (table entries of
  /// solve()), and stages between two positions (steps of StageCutter). Tables for bounds do not
  /// count.
  int64_t strategies = 0, cuts = 0;
  /// CPU seconds of the process: for the first bounds of all candidates; for pricing, with its
  /// placements, profiles and tighter bounds; for derivations; and for the proof of the answer's
  /// gap.
  double boundSeconds = 0, scoreSeconds = 0, deriveSeconds = 0, proofSeconds = 0;

  /// Candidates bounded or priced.
  int64_t evaluations() const { return bounded + priced; }

  SearchCounts &operator+=(const SearchCounts &other) {
    bounded += other.bounded;
    priced += other.priced;
    derived += other.derived;
    strategies += other.strategies;
    cuts += other.cuts;
    boundSeconds += other.boundSeconds;
    scoreSeconds += other.scoreSeconds;
    deriveSeconds += other.deriveSeconds;
    proofSeconds += other.proofSeconds;
    return *this;
  }
};

/// The counts during a search; thread-safe.
struct RunningCounts {
  std::atomic<int64_t> bounded{0}, priced{0}, derived{0}, strategies{0}, cuts{0};

  SearchCounts now() const {
    SearchCounts counts;
    counts.bounded = bounded;
    counts.priced = priced;
    counts.derived = derived;
    counts.strategies = strategies;
    counts.cuts = cuts;
    return counts;
  }
};

/// A callback with the number of finished configurations and their total.
using Progress = std::function<void(int64_t done, int64_t total)>;

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SEARCHCOUNTS_H
