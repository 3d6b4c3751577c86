//===- LocalJob.h - A job with all ranks on this machine --------------------===//
//
// Part of tbc. Plain C++ on POSIX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_LOCALJOB_H
#define TBC_RUNTIME_LAUNCH_LOCALJOB_H

#include "runtime/launch/Launcher.h"
#include "runtime/launch/Rendezvous.h"

namespace tbc::launch {

/// The start data of a rank.
struct LocalRank {
  int64_t rank = 0;
  /// A secret shared by the ranks.
  std::string token;
  /// Opens the job's store, in the rank's own process.
  std::function<Result<JobStore>()> openStore;
};

/// Runs `body` in one forked process per rank (see `launch`), with a store on a free port of the
/// loopback interface. Returns the code of `launch`. Errors: Other, without a free port or a
/// secret.
Result<int> launchLocalJob(int64_t numRanks, Timeout timeout,
                           const std::function<int(const LocalRank &)> &body);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_LOCALJOB_H
