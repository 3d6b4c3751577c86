//===- Workers.cpp - Threads that share tasks -----------------------------===//

#include "planner/support/Workers.h"

#include <algorithm>
#include <utility>
#ifdef __linux__
#include <sched.h>
#endif

namespace tbc::planner {

/// Returns the number of cores available to this process.
static int numCores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return CPU_COUNT(&set);
#endif
  return int(std::thread::hardware_concurrency());
}

static int threadsOf(int count) {
  constexpr int most = 8;
  return count > 0 ? count : std::clamp(numCores(), 1, most);
}

Workers::Workers(int count) : numThreads(threadsOf(count)) {}

Workers::~Workers() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isOver = true;
  }
  begun.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void Workers::run(size_t number, const std::function<void(size_t)> &newTask) {
  if (numThreads == 1 || number < 2) {
    for (size_t i = 0; i < number; ++i)
      newTask(i);
    return;
  }
  while (int(threads.size()) + 1 < numThreads)
    threads.emplace_back([this] { work(); });
  std::unique_lock<std::mutex> lock(mutex);
  task = &newTask;
  next = 0;
  end = number;
  begun.notify_all();
  takeTasks(lock);
  ended.wait(lock, [this] { return underWay == 0; });
  task = nullptr;
  if (thrown)
    std::rethrow_exception(std::exchange(thrown, nullptr));
}

void Workers::work() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    begun.wait(lock, [this] { return isOver || next < end; });
    if (isOver)
      return;
    takeTasks(lock);
  }
}

void Workers::takeTasks(std::unique_lock<std::mutex> &lock) {
  while (next < end) {
    size_t mine = next++;
    ++underWay;
    const std::function<void(size_t)> &call = *task;
    lock.unlock();
    std::exception_ptr exception;
    try {
      call(mine);
    } catch (...) {
      exception = std::current_exception();
    }
    lock.lock();
    if (exception && (!thrown || mine < thrownBy)) {
      thrown = exception;
      thrownBy = mine;
    }
    if (thrown) // tasks before it have all begun
      next = end;
    if (--underWay == 0 && next == end)
      ended.notify_all();
  }
}

} // namespace tbc::planner
