//===- ProfileFile.h - Profiles of a run -----------------------------------===//

#ifndef TBC_TOOLS_TBC_PROFILEFILE_H
#define TBC_TOOLS_TBC_PROFILEFILE_H

#include "planner/view/Against.h"

#include <optional>
#include <string>

namespace tbc::cli {

/// Reads the profile at `path`: of tbc run, torch.profiler or Nsight Systems. `firstRank`, from
/// --profile-rank, is for Nsight Systems alone. Errors: Usage.
Result<planner::MeasuredStep> readProfileFile(const std::string &path, const planner::Plan &plan,
                                              std::optional<int64_t> firstRank);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_PROFILEFILE_H
