//===- FakeCalls.h - Helpers of the fake driver's functions ----------------===//
//
// Internal to FakeDriver.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKECALLS_H
#define TBC_TESTS_RUNTIME_CUDA_FAKECALLS_H

#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::test {

/// The device whose context is current in this thread.
extern thread_local int currentDevice;

/// Handles are small numbers, counted from 1.
template <typename Handle> Handle handleOf(int index) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(index + 1));
}
template <typename Handle> int indexOf(Handle handle) {
  return int(reinterpret_cast<uintptr_t>(handle)) - 1;
}

/// Begins every function: locks the driver as `fake` and returns the code of an injected failure.
#define TBC_ENTER(symbol, needsContext)                                                            \
  FakeDriver &fake = FakeDriver::current();                                                        \
  std::lock_guard<std::recursive_mutex> guard(fake.lock());                                        \
  if (cuda::DriverCode code = fake.enter(#symbol, needsContext);                                   \
      code != cuda::DriverCode::Success)                                                           \
  return code

/// Functions for events and graphs (FakeGraphs.cpp).
struct FakeGraphCalls {
  static cuda::DriverCode eventRecord(cuda::EventHandle event, cuda::StreamHandle handle);
  static cuda::DriverCode streamWaitEvent(cuda::StreamHandle handle, cuda::EventHandle event,
                                          unsigned flags);
  static cuda::DriverCode streamBeginCapture(cuda::StreamHandle handle, cuda::CaptureMode mode);
  static cuda::DriverCode streamEndCapture(cuda::StreamHandle handle, cuda::GraphHandle *graph);
  static cuda::DriverCode graphInstantiate(cuda::GraphExecHandle *exec, cuda::GraphHandle graph,
                                           unsigned long long flags);
  static cuda::DriverCode graphGetNodes(cuda::GraphHandle graph, cuda::GraphNodeHandle *nodes,
                                        size_t *count);
  static cuda::DriverCode graphDestroy(cuda::GraphHandle graph);
  static cuda::DriverCode graphLaunch(cuda::GraphExecHandle exec, cuda::StreamHandle handle);
  static cuda::DriverCode graphExecDestroy(cuda::GraphExecHandle exec);
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKECALLS_H
