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

/// Libraries that the calling thread calls from now on start no threads of their own: OpenMP's
/// would spin while they wait. There may be no OpenMP at all.
void keepLibrariesSerial();

/// Threads that share the pieces of one job at a time. A piece does not know which thread does it,
/// so that results do not depend on how many there are. Who has nothing to do sleeps.
class Threads {
public:
  /// `count` >= 1, the caller of `run` included.
  explicit Threads(int count);
  ~Threads();

  int count() const;

  /// Memory for what the pieces of a job share, at least so large and aligned to a page; the caller
  /// of `run` asks for it, and has it until it asks again. Its contents are undefined. Throws
  /// bad_alloc.
  char *sharedScratch(size_t bytes);

  /// body(0) ... body(pieces - 1), each once, in any order; returns when all are done, and throws
  /// what the first of them threw. Called from within a piece it does all of them itself.
  void run(int64_t pieces, const std::function<void(int64_t piece)> &body);

  /// The same for ranges of [0, size) of at most `grain` elements.
  void runRanges(int64_t size, int64_t grain,
                 const std::function<void(int64_t begin, int64_t end)> &body);

private:
  class Pool;
  std::unique_ptr<Pool> pool;
  ScratchMemory scratch;
};

} // namespace tbc::cpu

#endif // TBC_RUNTIME_CPU_THREADS_H
