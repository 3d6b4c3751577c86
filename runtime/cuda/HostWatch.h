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
  /// The longest wait in which nothing gets on; 0: for ever.
  std::chrono::milliseconds timeout{0};
  /// The same while ranks connect and in the first step, which loads kernels and chooses
  /// algorithms; at least `timeout`.
  std::chrono::milliseconds connectTimeout{0};
  /// How long communicators may take to abort. A rank whose own thread has not come back after
  /// twice that time is ended by `exit`.
  std::chrono::milliseconds patience = std::chrono::seconds(5);
  /// Told the error once, before anything else is done about it, by the thread that found it.
  std::function<void(const Error &)> report;
  /// Ends the process; empty: the rank's thread is waited for as long as it takes.
  std::function<void(ErrorCode)> exit;
};

/// The clock of a rank, and how it fails. A thread of its own asks the job's store and NCCL for
/// errors, and looks for calls of the driver and of NCCL that do not come back.
///
/// A failure has one order: (1) the device is given up, so that nothing waits for it any more;
/// (2) the error is reported; (3) the job is given up in the store, which ends the other ranks;
/// (4) graphs are dropped, as a communicator ends after those that hold it, and all communicators
/// are aborted at once, each by a thread of its own: ncclCommAbort waits for the streams of the
/// user, so one of them may never return. Source: NCCL, src/init.cc, ncclCommAbort,
/// commDestroySync; src/enqueue.cc, finishPlan.
///
/// Example: a kernel of rank 1 hangs. Rank 1 names the kernel after `timeout`, rank 0 the
/// collective and rank 1; both end with HangDetected, though no abort ever returns.
class HostWatch {
public:
  HostWatch(DevicePtr device, WatchOptions options);
  /// Waits for a failure under way, but not for communicators that do not abort.
  ~HostWatch();
  HostWatch(const HostWatch &) = delete;
  HostWatch &operator=(const HostWatch &) = delete;

  /// The time-out that holds now; 0: none.
  std::chrono::milliseconds limit() const { return milliseconds(limitNow); }
  /// From now on `timeout` holds.
  void endFirstStep() { limitNow = options.timeout.count(); }

  bool hasFailed() const { return isOver; }
  /// Success, or the failure.
  Status status() const;
  /// Ends this rank and its job with this error; the one that counts, which may be an earlier one.
  Error fail(Error error);

  /// A call of the rank's thread that may block, from here to the end of the scope, for which
  /// `what` stays. `watch` may be null.
  class Call {
  public:
    Call(HostWatch *watch, const std::string &what);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    /// The call is at work: its clock begins anew.
    void getOn();

  private:
    HostWatch *watch;
    const std::string *before;
  };

  // For the communicators of the rank.

  /// What the communicators know of a failure.
  struct Job {
    comm::Store *store;
    const Nccl *nccl;
    /// The error of a call of the host that has not come back for so long.
    std::function<Error(const std::string &what, std::chrono::milliseconds waited)> isBlocked;
    /// The error to report in place of one that NCCL or the store gave, which does not say where
    /// this rank was, nor which rank failed.
    std::function<Error(const Error &error, bool isOfJob)> explain;
  };
  /// Its parts outlive the call of `leave`.
  void join(Job job);
  void leave();
  /// From now on it is asked for errors, and aborted by `fail`.
  void add(NcclHandle communicator);
  /// Whether the caller is to destroy it; else it is aborted.
  bool remove(NcclHandle communicator);
  /// The communicator's state; InProgress after a failure, when it may be gone.
  NcclCode ask(NcclHandle communicator);

private:
  using milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  void run();
  void lookAtCall();
  void lookAtJob();
  Status askStore();
  void abortAll();

  const DevicePtr device;
  const WatchOptions options;
  std::atomic<int64_t> limitNow;
  std::atomic<bool> isOver = false;

  mutable std::mutex mutex; // of what follows
  std::condition_variable changed;
  bool isClosing = false;
  Error failure;
  std::set<NcclHandle> communicators;
  const std::string *call = nullptr;
  int64_t numCalls = 0; // begun, ended or at work
  // Of the watch's own thread.
  int64_t numSeen = -1;
  Clock::time_point seenSince, nextLook, failedSince, lostSince;
  bool hasExited = false;

  std::mutex jobMutex; // held while the job is asked something
  std::unique_ptr<Job> job;
  std::thread thread;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_HOSTWATCH_H
