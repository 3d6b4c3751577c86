//===- RankReport.cpp - Report the error of a rank ---------------------------===//

#include "tools/tbc-run/RankReport.h"
#include "runtime/abi/Problem.h"
#include "runtime/launch/Say.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace tbc::cli {

void RankReport::say(const Error &error) {
  std::lock_guard<std::mutex> lock(mutex);
  // These errors stop all ranks alike, so only rank 0 reports them.
  bool isOfAll = error.code == ErrorCode::StoppedOnRequest || error.code == ErrorCode::NotFinite;
  // Rank 0 says by itself what the others learnt from it.
  bool isOfRank0 = error.message.rfind("rank 0: ", 0) == 0;
  if (hasSaid || ((isOfAll || isOfRank0) && rank != 0))
    return;
  hasSaid = true;
  launch::say("rank " + std::to_string(rank) + ": " + withCode(error).message);
}

Error withCalls(Error error, const comm::FlightRecorder &recorder) {
  bool isOfOthers = error.code == ErrorCode::RankFailed || error.code == ErrorCode::HangDetected;
  if (!isOfOthers || recorder.standing().numCalls == 0)
    return error;
  Result<std::string> file = recorder.write();
  error.message += file ? "; its last calls are in " + *file : "; " + file.error().message;
  return error;
}

std::shared_ptr<cuda::HostWatch> watchOf(const cuda::DevicePtr &device, const RunOptions &options,
                                         RankReport &report, bool isStoreOfRank) {
  cuda::WatchOptions watch;
  watch.timeout = std::chrono::seconds(options.timeoutSeconds);
  watch.connectTimeout = std::chrono::seconds(options.connectTimeoutSeconds);
  watch.report = [&report](const Error &error) { report.say(withCalls(error, report.calls())); };
  watch.exit = [isStoreOfRank](ErrorCode code) {
    constexpr std::chrono::seconds farewell(2);
    if (isStoreOfRank)
      std::this_thread::sleep_for(farewell);
    std::fflush(nullptr);
    std::_Exit(int(code));
  };
  return std::make_shared<cuda::HostWatch>(device, watch);
}

} // namespace tbc::cli
