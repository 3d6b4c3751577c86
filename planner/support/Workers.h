//===- Workers.h - Threads that share tasks -------------------------------===//

#ifndef TBC_PLANNER_SUPPORT_WORKERS_H
#define TBC_PLANNER_SUPPORT_WORKERS_H

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tbc::planner {

/// Threads for independent tasks. They start with the first shared task and end with this object.
class Workers {
public:
  /// `count`: the most threads, including the caller; 0: one for each core of the process, up to
  /// eight.
  explicit Workers(int count = 0);
  ~Workers();
  Workers(const Workers &) = delete;
  Workers &operator=(const Workers &) = delete;

  int count() const { return numThreads; }

  /// Calls task(i) for each i in [0, number), on any thread and in any order, and returns when all
  /// are done. Must not be called within a task. If tasks throw, rethrows the exception of the
  /// first in order, after all running tasks end; later tasks may not have been called.
  void run(size_t number, const std::function<void(size_t)> &task);

private:
  void work();
  void takeTasks(std::unique_lock<std::mutex> &lock);

  int numThreads;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable begun, ended;
  // Under `mutex`:
  const std::function<void(size_t)> *task = nullptr;
  size_t next = 0, end = 0, underWay = 0;
  std::exception_ptr thrown; // by task `thrownBy`
  size_t thrownBy = 0;
  bool isOver = false;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SUPPORT_WORKERS_H
