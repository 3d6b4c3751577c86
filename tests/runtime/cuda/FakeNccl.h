//===- FakeNccl.h - NCCL between ranks of this process ---------------------===//
//
// A table of functions for runtime/cuda on the streams of the FakeDriver, as strict as NCCL 2.23:
//  - It matches calls of a communicator by their order, and waits in the stream and not in the
//    call. Calls that do not match are complaints of the driver.
//  - A call answers InProgress, and is put into its stream when the caller asks how far it is. The
//    first collective of a communicator is so until all ranks have made theirs, and the first
//    message of a pair until both ends have. Source: NCCL, src/group.cc, src/enqueue.cc.
//  - ncclCommAbort returns when the streams of the user have ended in which its kernels are, and
//    every graph is destroyed that holds it. Source: NCCL, src/init.cc, commDestroySync.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKENCCL_H
#define TBC_TESTS_RUNTIME_CUDA_FAKENCCL_H

#include "runtime/cuda/Nccl.h"
#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// One at a time in a process, with a FakeDriver that outlives it.
class FakeNccl {
public:
  explicit FakeNccl(FakeDriver &driver);
  ~FakeNccl();
  FakeNccl(const FakeNccl &) = delete;
  FakeNccl &operator=(const FakeNccl &) = delete;

  static const cuda::Nccl &table();

  /// Communicators that were made, and neither destroyed nor aborted.
  int numAlive() const;
  int numSplits() const;
  /// Calls that read or write registered memory, so far.
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
