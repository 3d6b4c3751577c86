//===- Threads.h - A pool of threads that sleep when idle -------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CPU_THREADS_H
#define TBC_RUNTIME_CPU_THREADS_H

#include "runtime/cpu/ScratchMemory.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace tbc::cpu {

/// After this call, libraries called by this thread start no threads of their own. OpenMP's threads
/// would spin while they wait. The process may have no OpenMP at all.
void keepLibrariesSerial();

/// Threads that share the pieces of one job at a time. A piece does not know its thread, so results
/// do not depend on the number of threads. Idle threads sleep.
class Threads {
public:
  /// `count` >= 1 includes the caller of `run`.
  explicit Threads(int count);
  ~Threads();

  int count() const;

  /// Returns memory shared by the pieces of a job: at least `bytes` bytes, aligned to a page, with
  /// undefined contents. Only the caller of `run` requests it; it is valid until the next request.
  /// Throws bad_alloc.
  char *sharedScratch(size_t bytes);

  /// Runs body(0) ... body(pieces - 1), each once, in any order, and returns when all are done. It
  /// rethrows the first exception. A call from within a piece runs all of them itself.
  void run(int64_t pieces, const std::function<void(int64_t piece)> &body);

  /// The same for ranges of [0, size) with at most `grain` elements. Example: size 10 and grain 4
  /// give [0, 4), [4, 8), [8, 10).
  void runRanges(int64_t size, int64_t grain,
                 const std::function<void(int64_t begin, int64_t end)> &body);

private:
  class Pool;
  std::unique_ptr<Pool> pool;
  ScratchMemory scratch;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_THREADS_H
