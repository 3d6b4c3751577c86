//===- HostWatch.h - The watchdog of a rank with a GPU -----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_HOSTWATCH_H
#define TBC_RUNTIME_CUDA_HOSTWATCH_H

#include "runtime/comm/Store.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Nccl.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace tbc::cuda {

struct WatchOptions {
  /// The longest wait without any progress; 0: forever.
  std::chrono::milliseconds timeout{0};
  /// The same while ranks connect and in the first step, which loads kernels and chooses
  /// algorithms; at least `timeout`.
  std::chrono::milliseconds connectTimeout{0};
  /// The time that communicators get to abort. If the rank's own thread has not returned after
  /// twice this time, `exit` ends the rank.
  std::chrono::milliseconds patience = std::chrono::seconds(5);
  /// Receives the error once, on the thread that found it, before any other reaction.
  std::function<void(const Error &)> report;
  /// Ends the process. Empty: waits for the rank's thread without limit.
  std::function<void(ErrorCode)> exit;
};

/// The watchdog of a rank. A separate thread asks the job's store and NCCL for errors, and looks
/// for calls of the driver and of NCCL that do not return.
///
/// A failure has one order:
///
/// 1. The device is given up, so that no call waits for it any more.
/// 2. The error is reported.
/// 3. The job is given up in the store, which ends the other ranks.
/// 4. Graphs are dropped, because a communicator ends after the graphs that hold it. Then all
///    communicators are aborted at once, each by its own thread: ncclCommAbort waits for the user's
///    streams, so it may never return. Source: NCCL, src/init.cc, ncclCommAbort, commDestroySync;
///    src/enqueue.cc, finishPlan.
///
/// Example: a kernel of rank 1 hangs. After `timeout`, rank 1 names the kernel, and rank 0 names
/// the collective and rank 1. Both end with HangDetected, even if no abort ever returns.
class HostWatch {
public:
  HostWatch(DevicePtr device, WatchOptions options);
  /// Waits for a running failure, but not for communicators that do not abort.
  ~HostWatch();
  HostWatch(const HostWatch &) = delete;
  HostWatch &operator=(const HostWatch &) = delete;

  /// Returns the current time-out; 0: no limit.
  std::chrono::milliseconds limit() const { return milliseconds(limitNow); }
  /// Switches to `timeout`.
  void endFirstStep() { limitNow = options.timeout.count(); }

  bool hasFailed() const { return isOver; }
  /// Returns success, or the failure.
  Status status() const;
  /// Ends this rank and its job with this error. Returns the job's error, which may be an earlier
  /// one.
  Error fail(Error error);

  /// A call of the rank's thread that may block, until the end of the scope. `what` must outlive
  /// it. `watch` may be null.
  class Call {
  public:
    Call(HostWatch *watch, const std::string &what);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    /// Reports progress of the call: its clock starts again.
    void getOn();

  private:
    HostWatch *watch;
    const std::string *before;
  };

  // For the communicators of the rank.

  /// The communicators' knowledge about failures.
  struct Job {
    comm::Store *store;
    const Nccl *nccl;
    /// Returns the error for a call of the host that has been blocked for this long.
    std::function<Error(const std::string &what, std::chrono::milliseconds waited)> isBlocked;
    /// Returns a better error for one from NCCL or the store, which names neither the position of
    /// this rank nor the failed rank.
    std::function<Error(const Error &error, bool isOfJob)> explain;
  };
  /// Sets the job. Its parts outlive the call of `leave`.
  void join(Job job);
  /// Unsets it, once a failure under way has given up the job and aborted its communicators.
  void leave();
  /// Watches the communicator: asks it for errors, and aborts it on `fail`. Does nothing after a
  /// failure.
  void add(NcclHandle communicator);
  /// Returns whether the caller must destroy or abort it; otherwise the failure has aborted it or
  /// does so soon.
  bool remove(NcclHandle communicator);
  /// Returns the communicator's state; InProgress after a failure, because it may be gone by then.
  NcclCode ask(NcclHandle communicator);

private:
  using milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  void run();
  void lookAtCall();
  void lookAtJob();
  Status askStore();
  /// `abort` may be null: then there are no communicators.
  void abortAll(decltype(Nccl::abort) abort);

  const DevicePtr device;
  const WatchOptions options;
  std::atomic<int64_t> limitNow;
  std::atomic<bool> isOver = false;

  mutable std::mutex mutex; // for the following members
  std::condition_variable changed;
  bool isClosing = false;
  bool hasAborted = false; // after a failure: the job is given up, communicators are aborted
  Error failure;
  std::set<NcclHandle> communicators;
  const std::string *call = nullptr;
  int64_t numCalls = 0; // begun, ended or progressed
  // Used only by the watch's own thread.
  int64_t numSeen = -1;
  Clock::time_point seenSince, nextLook, failedSince, lostSince;
  bool hasExited = false;

  std::mutex jobMutex; // held during questions to the job
  std::unique_ptr<Job> job;
  std::thread thread;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_HOSTWATCH_H
