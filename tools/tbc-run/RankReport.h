//===- RankReport.h - Report the error of a rank -----------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_RANKREPORT_H
#define TBC_TOOLS_TBC_RUN_RANKREPORT_H

#include "runtime/comm/FlightRecorder.h"
#include "runtime/cuda/HostWatch.h"
#include "tools/tbc-run/RunOptions.h"

#include <mutex>

namespace tbc::cli {

/// Prints the error of a rank to stderr: one line, by the first thread that calls it.
class RankReport {
public:
  explicit RankReport(int64_t rank) : rank(rank), recorder(rank) {}
  void say(const Error &error);
  comm::FlightRecorder &calls() { return recorder; }
  int64_t ofRank() const { return rank; }

private:
  const int64_t rank;
  comm::FlightRecorder recorder;
  std::mutex mutex;
  bool hasSaid = false;
};

/// Returns the error with the path of the flight recorder's file, which lists the rank's last
/// calls.
Error withCalls(Error error, const comm::FlightRecorder &recorder);

/// Returns the watch of a rank on `device`. It reports errors to `report`, which must outlive it,
/// and ends the process if the rank's thread hangs. `isStoreOfRank`: this process serves the job's
/// store, so it stays long enough for other ranks to read the error.
std::shared_ptr<cuda::HostWatch> watchOf(const cuda::DevicePtr &device, const RunOptions &options,
                                         RankReport &report, bool isStoreOfRank);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_RANKREPORT_H
