//===- SearchLimits.h - The limits of a search ----------------------------===//

#ifndef TBC_PLANNER_PLAN_SEARCHLIMITS_H
#define TBC_PLANNER_PLAN_SEARCHLIMITS_H

#include <chrono>
#include <cstdint>
#include <optional>

namespace tbc::planner {

/// Limits are counts instead of seconds, so a plan does not depend on the machine or its load.
struct SearchBudget {
  /// Candidates listed and bounded. The largest job of tests/bench/planner_bench.py has 319,650.
  int64_t candidates = int64_t(1) << 19;
  /// Candidates scored, in order of their bounds. The same jobs score at most a few thousand.
  int64_t scored = 20000;
};

/// A time limit for a search, by default never. The search then returns its best plan.
class Deadline {
public:
  Deadline() = default;
  static Deadline after(double seconds) {
    Deadline deadline;
    deadline.end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                       std::chrono::duration<double>(seconds));
    return deadline;
  }

  bool isOver() const { return end && std::chrono::steady_clock::now() >= *end; }

private:
  std::optional<std::chrono::steady_clock::time_point> end;
};

/// The reason for the end of a search.
enum class SearchEnd {
  Complete,  ///< everything was examined, or excluded by its bound
  Budget,    ///< SearchBudget was used up
  TimeLimit, ///< the deadline passed
};

/// Returns the word of plan.json: "complete", "budget", "time limit".
const char *name(SearchEnd end);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_SEARCHLIMITS_H
