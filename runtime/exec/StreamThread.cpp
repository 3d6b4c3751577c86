//===- StreamThread.cpp - Two streams of a block, side by side --------------===//

#include "runtime/exec/StreamThread.h"

namespace tbc::runtime {

void StreamProgress::finish(program::Stream stream, int index) {
  {
    std::lock_guard lock(mutex);
    done[int(stream)] = index;
  }
  changed.notify_all();
}

void StreamProgress::fail(Error failure) {
  {
    std::lock_guard lock(mutex);
    if (!error)
      error = std::move(failure);
  }
  changed.notify_all();
}

Status StreamProgress::waitFor(program::Stream stream, int index) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return error || done[int(stream)] >= index; });
  return error ? Status(*error) : Status::ok();
}

StreamThread::StreamThread() : thread([this] { run(); }) {}

StreamThread::~StreamThread() {
  {
    std::lock_guard lock(mutex);
    isStopped = true;
  }
  changed.notify_all();
  thread.join();
}

void StreamThread::start(std::function<void()> next) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !job; });
  job = std::move(next);
  changed.notify_all();
}

void StreamThread::finish() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !job; });
}

void StreamThread::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return job || isStopped; });
    if (!job)
      return;
    lock.unlock();
    job();
    lock.lock();
    job = nullptr;
    changed.notify_all();
  }
}

} // namespace tbc::runtime
