//===- Sensitivities.h - Planning again after one change --------------------===//

#ifndef TBC_PLANNER_EXPLAIN_SENSITIVITIES_H
#define TBC_PLANNER_EXPLAIN_SENSITIVITIES_H

#include "planner/plan/Plan.h"
#include "planner/report/Sensitivity.h"
#include "planner/reshard/Graph.h"

#include <functional>
#include <string>
#include <vector>

namespace tbc::planner {

/// A job on a cluster, changed in one thing.
struct ChangedJob {
  std::string subject, change; // as in SensitivityRow
  Job job;
  Cluster cluster;
  int64_t memoryLimitBytes = 0; // as in a plan
};

/// Returns the changes of hardware and batch that matter to `plan`, in a fixed order: memory
/// +1 GiB; ±10 % of memory bandwidth, of each used network level, of the host link if the plan
/// offloads, of matmul efficiency (at most 1); a node more, a node less; twice the batch. A node of
/// a job within one node is the devices of the job.
std::vector<ChangedJob> changesOf(const Plan &plan);

/// What the caller knows beside the plan.
struct SensitivityQuestion {
  const reshard::Graph &graph;
  const Plan &plan;
  /// Returns the graph for half the sequence; an error if there is none.
  std::function<Result<reshard::Graph>(int64_t sequence)> graphOfSequence;
  /// Told before each search, with the number of searches.
  std::function<void(const std::string &change, int index, int count)> tell;
};

/// Plans again after each change, with the pins of the plan. Each row equals `tbc plan` with the
/// changed cluster file and flags. Errors: those of search() for the unchanged job.
Result<Sensitivity> sensitivityOf(const SensitivityQuestion &question);

} // namespace tbc::planner

#endif // TBC_PLANNER_EXPLAIN_SENSITIVITIES_H
