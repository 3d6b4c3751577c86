//===- FakeCudnn.h - cuDNN that computes graphs in this process ------------===//
//
// A table of functions for runtime/cuda on the streams of the FakeDriver. What a graph is stands in
// its descriptors alone: each operation is done element by element by their dims, strides and
// attributes, so that a wrong one is a wrong number. What the library would refuse (attributes of
// another type, descriptors that are not finished, tensors without an address) is refused, and
// complained about. Which patterns of operations it has engines for is not here: it has them for
// all.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKECUDNN_H
#define TBC_TESTS_RUNTIME_CUDA_FAKECUDNN_H

#include "runtime/cuda/Cudnn.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace tbc::test {

/// One at a time in a process, with a FakeDriver that outlives it. It has five ways to do a graph,
/// in this order: one that varies from run to run, one by tensor cores, one that rounds operands,
/// one that rounds sums, and a plain one.
class FakeCudnn {
public:
  explicit FakeCudnn(FakeDriver &driver);
  ~FakeCudnn();
  FakeCudnn(const FakeCudnn &) = delete;
  FakeCudnn &operator=(const FakeCudnn &) = delete;

  static const cuda::Cudnn &table();

  /// From now on it has no way to do anything, or the function of this name fails.
  void hasNoWay() { isUnable = true; }
  void fail(const std::string &function) { failing = function; }
  /// It is built for another major of CUDA than the driver, and does not start.
  void isOfAnotherMajor() { startsNot = true; }
  void setVersion(size_t number) { version = number; }
  /// How often it was asked how to do a graph, and did one; by which way (from 0) the last.
  int numAsked() const { return asked; }
  int numExecuted() const { return executed; }
  int lastWay() const { return way; }
  /// Of the graphs that were done: how many operations of this kind.
  int numOperations(cuda::CudnnKind kind) const;
  /// Handles and descriptors that were made and not given back.
  int numAlive() const { return alive; }

  static constexpr int64_t workspaceBytes = 1000;
  static constexpr size_t newest = 91900; // version

private:
  friend struct FakeCudnnCalls;
  FakeDriver &driver;
  bool isUnable = false, startsNot = false;
  std::string failing;
  size_t version = newest;
  int asked = 0, executed = 0, way = -1, alive = 0;
  std::map<cuda::CudnnKind, int> operations;
  std::map<cuda::CudnnHandle, cuda::StreamHandle> streams; // each rank has a handle of its own
  uintptr_t numCreated = 0;
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKECUDNN_H
