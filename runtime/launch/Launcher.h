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

/// What a rank does in its own process; the result is its exit code.
using RankBody = std::function<int(int64_t rank)>;

struct LaunchOptions {
  int64_t numRanks = 1;
  /// How long the others may go on after a rank has failed: long enough to notice it themselves and
  /// say where they were.
  Timeout grace = std::chrono::seconds(5);
};

/// Runs `body` in one forked process per rank and waits for all; `started`, if given, runs in this
/// process once all are there. To be called before this process has threads.
///
/// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on as SIGTERM, once. At the second of
/// the first three the ranks are killed; the other two are a scheduler's warning, which is no stop
/// by itself (Slurm's --signal=USR1@300, then SIGTERM at the end of the time). When a rank fails
/// the others are given `grace` and then killed; a rank cannot outlive this process. Returns 0, or
/// the code of the failure: RankFailed where a rank was killed by a signal (which is said on
/// stderr), else the code that a rank gave: HangDetected, StoppedOnRequest and the like.
int launch(const LaunchOptions &options, const RankBody &body,
           const std::function<void()> &started = {});

/// In a rank: whether a stop was asked for (SIGTERM, SIGINT, SIGUSR1, SIGUSR2). Call
/// `listenForStop` once before.
void listenForStop();
bool stopRequested();

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_LAUNCHER_H
