//===- Slurm.h - Batch scripts of Slurm --------------------------------------===//

#ifndef TBC_TOOLS_EXPORT_SLURM_H
#define TBC_TOOLS_EXPORT_SLURM_H

#include "planner/plan/Plan.h"

#include <string>
#include <vector>

namespace tbc::exporter {

/// A job with one task per rank, ranks consecutive on each node.
struct SlurmJob {
  int64_t nodes = 1, tasksPerNode = 1;
  int64_t gpusPerNode = 0; ///< 0: none is asked for
  std::string name;        ///< "": Slurm's own
  bool isRequeued = false; ///< after a node failed, and when warned ahead of the time limit
};

/// Returns the lines "#SBATCH …".
std::string slurmHeader(const SlurmJob &job);

/// Returns `text` as one word of a shell. Example: "it's" gives 'it'\''s'.
std::string shellWord(const std::string &text);

/// Returns the exports of NCCL's settings that predictions for `cluster` count on.
std::string ncclSettings(const planner::Cluster &cluster);

/// Returns the devices of each node that a plan uses, and the number of nodes.
int64_t devicesPerNode(const planner::Plan &plan);
int64_t nodesOf(const planner::Plan &plan);

/// Checks that every node has as many ranks. Errors: Usage, beginning with `flag`.
Status checkFullNodes(const planner::Plan &plan, const std::string &flag);

/// What a batch script of `tbc run` starts.
struct RunJob {
  std::string name;               ///< of the job
  std::string program;            ///< folder of the Program
  std::string plan;               ///< compiled into `program` first; "": it is compiled
  std::vector<std::string> flags; ///< of tbc-run
  bool isOnGpus = false;
  bool hasCheckpoint = false; ///< `flags` have --checkpoint
};

/// Returns a batch script that trains with `job` on the nodes of `plan`. With checkpoints, the job
/// is requeued after a failure and goes on from the latest. Errors: Usage of checkFullNodes().
Result<std::string> batchScript(const planner::Plan &plan, const RunJob &job);

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_SLURM_H
