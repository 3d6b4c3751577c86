//===- Executor.h - The program that runs a plan ---------------------------===//
//
// Plain C++. tbc's own Programs, or a framework with other kernels, overlap and buffers. Every
// number comes from a file in planner/executors.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_DEVICES_EXECUTOR_H
#define TBC_PLANNER_DEVICES_EXECUTOR_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

struct Cluster;

/// The name of tbc's own Programs.
constexpr const char *ownExecutor = "tbc";

/// The properties of an executor that are no constants of a cluster; runBy() sets those. The
/// defaults are those of tbc.
struct Executor {
  std::string name = ownExecutor;
  /// Stored parameters that one all_gather gathers together.
  int64_t joinedGathers = 1;
  /// Under full recomputation a block runs its whole forward again, also the ops that backward does
  /// not read.
  bool recomputesBlocks = false;
  /// Residuals kept, relative to those of tbc.
  double residualFactor = 1;
  // Bytes per parameter of a rank, as gathered:
  double gradientBytes = 0;     // of its gradient, at least
  double parameterBytes = 0;    // of copies and buffers, always
  double dataParallelBytes = 0; // of buffers, with more than one data rank

  bool isOwn() const { return name == ownExecutor; }
  bool operator==(const Executor &o) const {
    return name == o.name && joinedGathers == o.joinedGathers &&
           recomputesBlocks == o.recomputesBlocks && residualFactor == o.residualFactor &&
           gradientBytes == o.gradientBytes && parameterBytes == o.parameterBytes &&
           dataParallelBytes == o.dataParallelBytes;
  }
};

/// Returns the names of all executors, sorted; "tbc" is one.
std::vector<std::string> executorNames();

/// Returns `cluster` with the constants of executor `name` on all its devices. Errors: Usage for an
/// unknown name, with a list of all. Example: with "deepspeed", no kernel hides communication.
Result<Cluster> runBy(const Cluster &cluster, const std::string &name);

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_EXECUTOR_H
