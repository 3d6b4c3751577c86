//===- HostWatch.cpp - The watchdog of a rank with a GPU ---------------------===//

#include "runtime/cuda/HostWatch.h"

#include <algorithm>

namespace tbc::cuda {

HostWatch::HostWatch(DevicePtr device, WatchOptions given)
    : device(std::move(device)), options(std::move(given)),
      limitNow(options.timeout.count() == 0
                   ? 0
                   : std::max(options.timeout, options.connectTimeout).count()),
      thread([this] { run(); }) {}

HostWatch::~HostWatch() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isClosing = true;
  }
  changed.notify_all();
  thread.join();
}

//===----------------------------------------------------------------------===//
// Failing
//===----------------------------------------------------------------------===//

Status HostWatch::status() const {
  if (!isOver)
    return Status::ok();
  std::lock_guard<std::mutex> lock(mutex);
  return failure;
}

Error HostWatch::fail(Error error) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (isOver)
      return failure;
    failure = error;
    // First, so that a thread that sees the failure does not wait for the device.
    device->giveUp();
    isOver = true;
  }
  if (options.report)
    options.report(error);
  decltype(Nccl::abort) abort = nullptr;
  {
    std::lock_guard<std::mutex> lock(jobMutex);
    if (job) {
      job->store->abort(error);
      abort = job->nccl->abort;
    }
  }
  abortAll(abort);
  {
    std::lock_guard<std::mutex> lock(mutex);
    hasAborted = true;
  }
  changed.notify_all();
  return error;
}

namespace {
/// The number of threads still running.
struct Endings {
  std::mutex mutex;
  std::condition_variable changed;
  size_t left = 0;
  void end() {
    std::lock_guard<std::mutex> lock(mutex);
    --left;
    changed.notify_all();
  }
};
} // namespace

/// Aborts all communicators at once. One that waits for another rank must not block the abort for
/// which that rank waits. Threads that do not finish within `patience` continue until the process
/// ends.
void HostWatch::abortAll(decltype(Nccl::abort) abort) {
  auto endings = std::make_shared<Endings>();
  std::vector<NcclHandle> handles;
  {
    std::lock_guard<std::mutex> lock(mutex);
    handles.assign(communicators.begin(), communicators.end());
  }
  endings->left = 1 + (abort ? handles.size() : 0);
  std::thread([endings, device = device] {
    device->dropGraphs();
    endings->end();
  }).detach();
  if (abort)
    for (NcclHandle handle : handles)
      std::thread([endings, handle, abort] {
        abort(handle);
        endings->end();
      }).detach();
  std::unique_lock<std::mutex> waiting(endings->mutex);
  endings->changed.wait_for(waiting, options.patience, [&] { return endings->left == 0; });
}

//===----------------------------------------------------------------------===//
// Calls of the host
//===----------------------------------------------------------------------===//

HostWatch::Call::Call(HostWatch *watch, const std::string &what) : watch(watch), before(nullptr) {
  if (!watch)
    return;
  std::lock_guard<std::mutex> lock(watch->mutex);
  before = watch->call;
  watch->call = &what;
  ++watch->numCalls;
}

HostWatch::Call::~Call() {
  if (!watch)
    return;
  std::lock_guard<std::mutex> lock(watch->mutex);
  watch->call = before;
  ++watch->numCalls;
}

void HostWatch::Call::getOn() {
  if (!watch)
    return;
  std::lock_guard<std::mutex> lock(watch->mutex);
  ++watch->numCalls;
}

//===----------------------------------------------------------------------===//
// The rank's communicators
//===----------------------------------------------------------------------===//

void HostWatch::join(Job given) {
  std::lock_guard<std::mutex> lock(jobMutex);
  job = std::make_unique<Job>(std::move(given));
}

void HostWatch::leave() {
  {
    // The thread of a failure still needs the job, to give it up in the store and to abort.
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return !isOver || hasAborted; });
  }
  std::lock_guard<std::mutex> lock(jobMutex);
  job.reset();
}

void HostWatch::add(NcclHandle communicator) {
  std::lock_guard<std::mutex> lock(mutex);
  // The thread of a failure may have collected its communicators already.
  if (!isOver)
    communicators.insert(communicator);
}

bool HostWatch::remove(NcclHandle communicator) {
  std::lock_guard<std::mutex> lock(mutex);
  // After a failure it stays: the thread that found the failure may not have collected it yet.
  if (isOver)
    return communicators.count(communicator) == 0;
  communicators.erase(communicator);
  return true;
}

NcclCode HostWatch::ask(NcclHandle communicator) {
  // The caller is the rank's thread, or the watch's thread holding jobMutex, so `job` exists.
  std::lock_guard<std::mutex> lock(mutex);
  if (isOver)
    return NcclCode::InProgress;
  NcclCode code = NcclCode::Success;
  NcclCode asked = job->nccl->getAsyncError(communicator, &code);
  return asked == NcclCode::Success ? code : asked;
}

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

void HostWatch::run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!isClosing) {
    // Time-outs are seconds or more; only tests have short ones.
    auto pause = limitNow == 0 ? milliseconds(200)
                               : std::clamp(limit() / 10, milliseconds(10), milliseconds(200));
    changed.wait_for(lock, pause, [&] { return isClosing; });
    if (isClosing)
      return;
    if (isOver) {
      Clock::time_point now = Clock::now();
      failedSince = failedSince == Clock::time_point() ? now : failedSince;
      if (options.exit && !hasExited && now - failedSince > 2 * options.patience) {
        hasExited = true;
        options.exit(failure.code);
      }
      continue;
    }
    lock.unlock();
    lookAtCall();
    lookAtJob();
    lock.lock();
  }
}

void HostWatch::lookAtCall() {
  std::string what;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!call || numCalls != numSeen) {
      numSeen = numCalls;
      seenSince = Clock::now();
      return;
    }
    what = *call;
  }
  auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - seenSince);
  if (limitNow == 0 || waited <= limit())
    return;
  Error error{ErrorCode::HangDetected, device->name() + ": " + what + " has not come back for " +
                                           std::to_string(limitNow) + " ms"};
  {
    std::lock_guard<std::mutex> lock(jobMutex);
    if (job)
      error = job->isBlocked(what, limit());
  }
  fail(std::move(error));
}

/// Returns an error if the job was given up, or if its store has been unreachable for too long. A
/// short absence is normal at the end of a run, because the rank that serves the store may leave
/// first.
Status HostWatch::askStore() {
  auto alive = job->store->claim("nccl/alive", "yes");
  if (alive || job->store->givenUp()) {
    lostSince = {};
    return alive ? Status::ok() : Status(alive.error());
  }
  if (lostSince == Clock::time_point())
    lostSince = Clock::now();
  return Clock::now() - lostSince > options.patience ? Status(alive.error()) : Status::ok();
}

/// Checks for errors of NCCL and of the job. The store is in another process and is asked rarely.
void HostWatch::lookAtJob() {
  constexpr milliseconds every(200);
  if (Clock::now() < nextLook)
    return;
  nextLook = Clock::now() + every;
  Error error;
  {
    std::lock_guard<std::mutex> jobLock(jobMutex);
    if (!job)
      return;
    std::vector<NcclHandle> handles;
    {
      std::lock_guard<std::mutex> lock(mutex);
      handles.assign(communicators.begin(), communicators.end());
    }
    Status status;
    for (NcclHandle handle : handles) {
      std::lock_guard<std::mutex> lock(mutex);
      if (isOver || communicators.count(handle) == 0)
        continue;
      NcclCode code = NcclCode::Success;
      NcclCode asked = job->nccl->getAsyncError(handle, &code);
      if (status)
        status = checkNccl(*job->nccl, asked == NcclCode::Success ? code : asked, handle,
                           "NCCL between ranks");
    }
    bool isOfJob = bool(status);
    if (isOfJob)
      status = askStore();
    if (status)
      return;
    error = job->explain(status.error(), isOfJob);
  }
  fail(std::move(error));
}

} // namespace tbc::cuda
