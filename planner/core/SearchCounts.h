//===- SearchCounts.h - What a search has compared -------------------------===//

#ifndef TBC_PLANNER_CORE_SEARCHCOUNTS_H
#define TBC_PLANNER_CORE_SEARCHCOUNTS_H

#include <atomic>
#include <cstdint>

namespace tbc::planner {

/// How much a search has looked at. What is done ahead on other threads counts when it is done, so
/// that with several all numbers but the first depend on them; with one they do not.
struct SearchCounts {
  /// Complete candidates (mesh, micro-batch, ZeRO, schedule, recomputation) that got a lower bound.
  int64_t bounded = 0;
  /// Of these, with their strategies and stage cuts, those priced in closed form, time and memory:
  /// each other cut or share of recomputation that is tried is one more.
  int64_t priced = 0;
  /// Of these, those derived op by op.
  int64_t derived = 0;
  /// Parts of candidates compared in tables: strategies of an op beside those of its neighbours
  /// (entries of the tables of solve()), and stages from one place to another (steps of
  /// StageCutter). Not counted: the tables that bounds are made of.
  int64_t strategies = 0, cuts = 0;
  /// CPU seconds of the process meanwhile: until all candidates have their first bound; of what is
  /// priced, with the placements, profiles and tighter bounds that takes; of derivations; of the
  /// proof of how good the answer is.
  double boundSeconds = 0, scoreSeconds = 0, deriveSeconds = 0, proofSeconds = 0;

  /// Complete candidates bounded or priced.
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

/// The same while it runs, for any thread.
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

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCHCOUNTS_H
