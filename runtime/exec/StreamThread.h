//===- StreamThread.h - Two streams of a block, side by side ----------------===//
//
// Part of tbc. Plain C++. Internal to runtime/exec.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_STREAMTHREAD_H
#define TBC_RUNTIME_EXEC_STREAMTHREAD_H

#include "runtime/abi/Program.h"

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace tbc::runtime {

/// How far the streams of one execution of a block have come. What was done before `finish` is seen
/// by who has waited for it.
class StreamProgress {
public:
  StreamProgress() { done.fill(-1); }

  /// Instruction `index` of the stream, and those before it there, are done.
  void finish(program::Stream stream, int index);
  /// Nobody waits any longer; the first error stays.
  void fail(Error error);
  /// Returns when instruction `index` of the stream is done, or with the error of either side.
  Status waitFor(program::Stream stream, int index);

  /// Held while kernels run and results are written to slots, of either stream: machines take one
  /// call at a time.
  std::mutex machine;
  /// Held while observers are told; after `machine`, where both are.
  std::mutex observers;

private:
  std::mutex mutex;
  std::condition_variable changed;
  std::array<int, program::numStreams> done;
  std::optional<Error> error;
};

/// A thread that does one job after the other, and sleeps in between.
class StreamThread {
public:
  StreamThread();
  /// Waits for the job under way.
  ~StreamThread();
  StreamThread(const StreamThread &) = delete;
  StreamThread &operator=(const StreamThread &) = delete;

  /// Begins a job when the one before it is done.
  void start(std::function<void()> job);
  /// Waits for the job under way, if there is one.
  void finish();

private:
  void run();

  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> job; // none: idle
  bool isStopped = false;
  std::thread thread;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_STREAMTHREAD_H
