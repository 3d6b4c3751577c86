//===- FakeCudnn.h - cuDNN computed in this process ------------------------===//
//
// A table of functions for runtime/cuda on the streams of the FakeDriver. A graph is defined by its
// descriptors alone. Each operation runs element by element with their dims, strides and
// attributes, so a wrong descriptor gives a wrong number. The fake refuses, with a complaint,
// everything the library would refuse:
//
// - attributes of another type
// - unfinished descriptors
// - tensors without an address
//
// The library has engines for some patterns of operations only; the fake has them for all patterns.
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

/// At most one exists in a process. Its FakeDriver must outlive it. It has five engines for a
/// graph, in this order:
///
/// 0. nondeterministic
/// 1. uses tensor cores
/// 2. rounds operands
/// 3. rounds sums
/// 4. plain
class FakeCudnn {
public:
  explicit FakeCudnn(FakeDriver &driver);
  ~FakeCudnn();
  FakeCudnn(const FakeCudnn &) = delete;
  FakeCudnn &operator=(const FakeCudnn &) = delete;

  static const cuda::Cudnn &table();

  /// From now on the heuristics find no engine, or the function of this name fails.
  void hasNoWay() { isUnable = true; }
  void fail(const std::string &function) { failing = function; }
  /// Pretends to be built for another CUDA major than the driver's, and does not start.
  void isOfAnotherMajor() { startsNot = true; }
  void setVersion(size_t number) { version = number; }
  /// Returns the number of heuristic queries, of executed graphs, and the last engine (from 0).
  int numAsked() const { return asked; }
  int numExecuted() const { return executed; }
  int lastWay() const { return way; }
  /// Returns how many operations of this kind the executed graphs had.
  int numOperations(cuda::CudnnKind kind) const;
  /// Returns the number of handles and descriptors not yet destroyed.
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
