//===- FakeNccl.h - NCCL between ranks of this process ---------------------===//
//
// A table of functions for runtime/cuda on the streams of the FakeDriver, as strict as NCCL 2.23:
//
// - It matches calls of a communicator by their order. It waits in the stream, not in the call.
//   Calls that do not match are complaints of the driver.
// - A call answers InProgress and enters its stream when the caller polls. The first collective of
//   a communicator stays in progress until all ranks have called theirs. The first message of a
//   pair waits for both ends. Source: NCCL, src/group.cc, src/enqueue.cc.
// - ncclCommAbort waits until the user's streams with its kernels have ended and every graph with
//   the communicator is destroyed. Source: NCCL, src/init.cc, commDestroySync.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKENCCL_H
#define TBC_TESTS_RUNTIME_CUDA_FAKENCCL_H

#include "runtime/cuda/Nccl.h"
#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// At most one exists in a process. Its FakeDriver must outlive it.
class FakeNccl {
public:
  explicit FakeNccl(FakeDriver &driver);
  ~FakeNccl();
  FakeNccl(const FakeNccl &) = delete;
  FakeNccl &operator=(const FakeNccl &) = delete;

  static const cuda::Nccl &table();

  /// Returns the number of communicators neither destroyed nor aborted.
  int numAlive() const;
  int numSplits() const;
  /// Returns the number of calls so far with registered memory.
  int numRegisteredCalls() const;
  /// From now on every communicator has this error, as after a lost connection.
  void failAll(cuda::NcclCode code);

private:
  friend struct FakeNcclCalls;
  struct State;
  std::unique_ptr<State> state;
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKENCCL_H
