//===- Against.h - A measured step beside the predicted one ----------------===//
//
// Plain C++. Reads the trace of `tbc run --profile`, of torch.profiler or of Nsight Systems, and
// compares it with the timeline of its plan group by group.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_VIEW_AGAINST_H
#define TBC_PLANNER_VIEW_AGAINST_H

#include "planner/report/Report.h"
#include "planner/view/Timeline.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// A measured step.
struct MeasuredStep {
  /// Seconds by group, the mean of the ranks: "step", "kernels of forward", "all_reduce", ...
  std::map<std::string, double> seconds;
  std::vector<int64_t> ranks; // ascending
  /// The events for traceJson(): each an object without its braces. The step begins at 0, and the
  /// processes are "rank N, measured".
  std::vector<std::string> events;
};

/// Reads `text`, a trace of `tbc run --profile` of `plan`, or of one rank by torch.profiler; its
/// kernels are one group, "kernels". `source` names it in messages. Errors:
/// Usage for other text, or for ranks that the plan does not have.
Result<MeasuredStep> readProfile(const std::string &text, const std::string &source,
                                 const Plan &plan);

/// Reads the SQLite export of Nsight Systems at `path` (see fromNsight). Kernels are in the groups
/// of the NVTX ranges around their launches, and without such ranges one group, "kernels".
Result<MeasuredStep> readNsight(const std::string &path, const Plan &plan,
                                std::optional<int64_t> firstRank);

/// Returns the same groups of the timeline, the mean over `ranks`.
std::map<std::string, double> groupSeconds(const StepTimeline &timeline, const Plan &plan,
                                           const std::vector<int64_t> &ranks);

/// Seconds of one group.
struct Residual {
  std::string group;
  double predicted = 0, measured = 0; // 0: not on that side
  double difference() const { return measured - predicted; }
};

/// Returns predicted and measured seconds of each group, the largest difference first.
std::vector<Residual> residualsOf(const StepTimeline &timeline, const Plan &plan,
                                  const MeasuredStep &profile);

/// Reports predicted and measured seconds of each group and their ratio, the largest difference
/// first. Groups of one side alone have no ratio.
Report compareProfile(const StepTimeline &timeline, const Plan &plan, const MeasuredStep &profile);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_AGAINST_H
