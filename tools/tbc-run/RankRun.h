//===- RankRun.h - One rank of a run -----------------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_RANKRUN_H
#define TBC_TOOLS_TBC_RUN_RANKRUN_H

#include "runtime/launch/LocalJob.h"
#include "tools/tbc-run/RunOptions.h"

#include <cstdint>
#include <functional>
#include <string>

namespace tbc::cli {

/// The start parameters of a rank, from its launcher.
struct RankStart {
  int64_t rank = 0, localRank = 0, numLocalRanks = 1;
  bool isStartedHere = false;  // by this program, not by a launcher
  bool isStoreOfRank0 = false; // this process serves the job's store
  std::string token, host = "127.0.0.1";
  /// Opens the job's store in the rank's own process.
  std::function<Result<launch::JobStore>()> openStore;
};

/// Runs a rank from start to end, in its own process, and prints its error, if there is one.
/// Returns the exit code.
int rankCode(const train::LoadedProgram &loaded, const RunOptions &options, const RankStart &start);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_RANKRUN_H
