//===- RankReport.h - How a rank says why it ends ----------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_RANKREPORT_H
#define TBC_TOOLS_TBC_RUN_RANKREPORT_H

#include "runtime/comm/FlightRecorder.h"
#include "runtime/cuda/HostWatch.h"
#include "tools/tbc-run/RunCommand.h"

#include <mutex>

namespace tbc::cli {

/// Says the error of a rank to stderr: one line, once, from whichever thread is the first to call
/// it.
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

/// The error of a rank that failed among others, with the file in which its last calls are.
Error withCalls(Error error, const comm::FlightRecorder &recorder);

/// The watch of a rank that computes on `device`. It reports by `report`, which outlives it, and
/// ends the process where the rank's thread does not come back. `isStoreOfRank`: other ranks read
/// from this process why the job ends.
std::shared_ptr<cuda::HostWatch> watchOf(const cuda::DevicePtr &device, const RunOptions &options,
                                         RankReport &report, bool isStoreOfRank);

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_RANKREPORT_H
