//===- SearchLimits.h - How far a search may go ----------------------------===//

#ifndef TBC_PLANNER_CORE_SEARCHLIMITS_H
#define TBC_PLANNER_CORE_SEARCHLIMITS_H

#include <chrono>
#include <cstdint>
#include <optional>

namespace tbc::planner {

/// Counts instead of seconds, so that a plan does not depend on the machine or its load.
struct SearchBudget {
  /// Candidates that are listed and bounded. The largest job of tests/bench/planner_bench.py has
  /// 319,650.
  int64_t candidates = int64_t(1) << 19;
  /// Of these, the ones that are scored, in order of their bounds. The same jobs score at most a
  /// few thousand.
  int64_t scored = 20000;
};

/// A point in time after which a search takes the best that it has; by default never.
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

/// Why a search ended.
enum class SearchEnd {
  Complete,  ///< everything was looked at, or ruled out by its bound
  Budget,    ///< SearchBudget was used up
  TimeLimit, ///< the deadline was over
};

/// "complete", "budget", "time limit": the words of plan.json.
const char *name(SearchEnd end);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_SEARCHLIMITS_H
