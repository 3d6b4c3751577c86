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

/// The progress of the streams in one execution of a block. `finish` happens before the return of
/// the matching `waitFor` (in the memory model).
class StreamProgress {
public:
  StreamProgress() { done.fill(-1); }

  /// Marks instruction `index` of the stream, and all before it there, as done.
  void finish(program::Stream stream, int index);
  /// Ends all waits with an error; the first error is kept.
  void fail(Error error);
  /// Returns when instruction `index` of the stream is done, or with the error of either side.
  Status waitFor(program::Stream stream, int index);

  /// Held by either stream while kernels run and results are written to slots: machines take one
  /// call at a time.
  std::mutex machine;
  /// Held during calls of observers. Locked after `machine` if both are needed.
  std::mutex observers;

private:
  std::mutex mutex;
  std::condition_variable changed;
  std::array<int, program::numStreams> done;
  std::optional<Error> error;
};

/// A thread that runs one job after another and sleeps in between.
class StreamThread {
public:
  StreamThread();
  /// Waits for the running job.
  ~StreamThread();
  StreamThread(const StreamThread &) = delete;
  StreamThread &operator=(const StreamThread &) = delete;

  /// Starts a job after the previous one is done.
  void start(std::function<void()> job);
  /// Waits for the running job, if there is one.
  void finish();

private:
  void run();

  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> job; // empty: idle
  bool isStopped = false;
  std::thread thread;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_STREAMTHREAD_H
