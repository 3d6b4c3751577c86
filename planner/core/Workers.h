//===- Workers.h - Threads that share out tasks ----------------------------===//

#ifndef TBC_PLANNER_CORE_WORKERS_H
#define TBC_PLANNER_CORE_WORKERS_H

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tbc::planner {

/// Threads for tasks that do not depend on each other. They begin when there is something to share
/// out, and end with this.
class Workers {
public:
  /// `count`: threads at most, the one that calls among them; 0: one for each core that the process
  /// may run on, up to eight.
  explicit Workers(int count = 0);
  ~Workers();
  Workers(const Workers &) = delete;
  Workers &operator=(const Workers &) = delete;

  int count() const { return numThreads; }

  /// Calls task(i) for each i in [0, number), on any thread and in any order, and returns when all
  /// are done. Not from within a task. What a task throws is thrown here, of several the first in
  /// their order, when no other is under way; those after it may not have been called.
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

#endif // TBC_PLANNER_CORE_WORKERS_H
