//===- Threads.cpp - A pool of threads that sleep when idle ------------------===//

#include "runtime/cpu/Threads.h"

#include <algorithm>
#include <condition_variable>
#include <dlfcn.h>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tbc::cpu {

void keepLibrariesSerial() {
  using SetNumThreads = void (*)(int);
  if (auto set = reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
    set(1);
}

static thread_local bool isWithinPiece = false;

class Threads::Pool {
public:
  explicit Pool(int count) {
    try {
      for (int i = 1; i < count; ++i)
        workers.emplace_back([this] { work(); });
    } catch (...) { // the system has no more threads; those that wait would never end
      end();
      throw;
    }
  }

  ~Pool() { end(); }

  int count() const { return int(workers.size()) + 1; }

  void run(int64_t numPieces, const std::function<void(int64_t)> &job) {
    keepLibrariesSerial();
    {
      std::lock_guard<std::mutex> lock(mutex);
      body = &job;
      pieces = numPieces;
      next = 0;
      unfinished = numPieces;
      failure = nullptr;
    }
    wake.notify_all();
    std::unique_lock<std::mutex> lock(mutex);
    takePieces(lock);
    done.wait(lock, [this] { return unfinished == 0; });
    body = nullptr;
    if (failure)
      std::rethrow_exception(failure);
  }

private:
  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      isOver = true;
    }
    wake.notify_all();
    for (std::thread &worker : workers)
      worker.join();
  }

  void work() {
    keepLibrariesSerial();
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return isOver || (body && next < pieces); });
      if (isOver)
        return;
      takePieces(lock);
    }
  }

  /// Runs pieces until all are taken. Pieces are large, so a lock per piece is cheap.
  void takePieces(std::unique_lock<std::mutex> &lock) {
    while (next < pieces) {
      int64_t piece = next++;
      const std::function<void(int64_t)> &job = *body;
      lock.unlock();
      std::exception_ptr error;
      isWithinPiece = true;
      try {
        job(piece);
      } catch (...) {
        error = std::current_exception();
      }
      isWithinPiece = false;
      lock.lock();
      if (error && !failure)
        failure = error;
      if (--unfinished == 0)
        done.notify_one();
    }
  }

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(int64_t)> *body = nullptr;
  int64_t pieces = 0, next = 0, unfinished = 0;
  std::exception_ptr failure;
  bool isOver = false;
};

Threads::Threads(int count) : pool(std::make_unique<Pool>(std::max(1, count))) {}
Threads::~Threads() = default;

int Threads::count() const { return pool->count(); }

char *Threads::sharedScratch(size_t bytes) { return scratch.atLeast(bytes); }

void Threads::run(int64_t pieces, const std::function<void(int64_t)> &body) {
  if (pieces > 1 && pool->count() > 1 && !isWithinPiece)
    return pool->run(pieces, body);
  keepLibrariesSerial();
  for (int64_t piece = 0; piece < pieces; ++piece)
    body(piece);
}

void Threads::runRanges(int64_t size, int64_t grain,
                        const std::function<void(int64_t, int64_t)> &body) {
  run((size + grain - 1) / grain,
      [&](int64_t piece) { body(piece * grain, std::min(size, (piece + 1) * grain)); });
}

} // namespace tbc::cpu
