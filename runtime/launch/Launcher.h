//===- Launcher.h - Starts the ranks of a job on this machine --------------===//
//
// Part of tbc. Plain C++ on POSIX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_LAUNCHER_H
#define TBC_RUNTIME_LAUNCH_LAUNCHER_H

#include "runtime/launch/Stores.h"

#include <functional>

namespace tbc::launch {

/// The work of a rank in its own process; the result is its exit code.
using RankBody = std::function<int(int64_t rank)>;

struct LaunchOptions {
  int64_t numRanks = 1;
  /// The time that the other ranks get after one has failed, so that they can notice it and report
  /// their positions.
  Timeout grace = std::chrono::seconds(5);
};

/// Runs `body` in one forked process per rank and waits for all. `started`, if given, runs in this
/// process once all ranks are running. Call it before this process has threads.
///
/// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded as SIGTERM, once. A second SIGINT,
/// SIGTERM or SIGHUP kills the ranks. SIGUSR1 and SIGUSR2 are a scheduler's warning and do not
/// count as a stop. Example: Slurm's --signal=USR1@300 warns, then SIGTERM follows at the end of
/// the time.
///
/// After a rank has failed, the others get `grace` and are then killed; at once if all that are
/// left are stopped (SIGSTOP). A rank cannot outlive this process. Returns 0 or the code of the
/// failure: RankFailed if a signal killed a rank (also reported on stderr), else the rank's own
/// code, such as HangDetected or StoppedOnRequest.
int launch(const LaunchOptions &options, const RankBody &body,
           const std::function<void()> &started = {});

/// Returns, in a rank, whether a stop was requested (SIGTERM, SIGINT, SIGUSR1, SIGUSR2). Call
/// `listenForStop` once before, and before this process has threads, which inherit that these
/// signals are blocked.
void listenForStop();
bool stopRequested();

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_LAUNCHER_H
