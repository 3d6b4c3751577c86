//===- FromRun.h - tbc calibrate --from-run --------------------------------===//

#ifndef TBC_TOOLS_TBC_FROMRUN_H
#define TBC_TOOLS_TBC_FROMRUN_H

#include "runtime/abi/Status.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::cli {

struct FromRunOptions {
  std::vector<std::string> logs; // of one plan: logs, CSVs of step times, profiles
  std::string plan;              // plan.json of that run
  /// The cluster that it was planned for; unset: the preset with its name.
  std::optional<std::string> cluster;
  std::string output; // cluster file to write
};

/// Updates the time factor of the plan's cluster and executor by measured steps, prints it, and
/// writes the cluster file. Errors: Usage.
Result<int> runFromRun(const FromRunOptions &options);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_FROMRUN_H
