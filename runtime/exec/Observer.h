//===- Observer.h - A callback for executed instructions -------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_OBSERVER_H
#define TBC_RUNTIME_EXEC_OBSERVER_H

#include "runtime/abi/Program.h"

#include <chrono>
#include <functional>
#include <memory>

namespace tbc::runtime {

/// Work that a device does on its own, and times.
class DeviceSpan {
public:
  struct Times {
    std::chrono::steady_clock::time_point begin, end; // on the clock of this process
  };
  virtual ~DeviceSpan() = default;
  /// Waits for its end. Errors: those of the device.
  virtual Result<Times> times() const = 0;
};

/// Instructions `first` to `end` of a block that were executed by one call: a single one, or those
/// of a region.
struct Executed {
  const program::Stage &stage;
  const schedule::Action &action;
  int first = 0, end = 0;
  std::chrono::steady_clock::time_point begin, finish;
  /// Returns the content of one of their results; without value if it is not stored (inside a
  /// region).
  std::function<kernels::Tensor(program::ValueId)> value;
  /// If a device does the work later: its time there (`begin` and `finish` are then those of the
  /// call that enqueued it). Null unless an observer `timesDevices`.
  std::shared_ptr<const DeviceSpan> onDevice = nullptr;

  const program::Instruction &instruction(int index) const {
    return stage.block(action).instructions[index];
  }
};

/// Is called for everything that an executor has executed, on the executing thread.
class Observer {
public:
  virtual ~Observer() = default;
  /// Called after execution. An error ends the step.
  virtual Status executed(const Executed &executed) = 0;

  /// Returns whether it must be called during the step; asked before each step. If no observer
  /// must, a machine may execute the step as a whole, and the observers are called afterwards.
  virtual bool looksAtOnce() const { return true; }
  /// Returns whether it needs `Executed::onDevice`; asked before each step.
  virtual bool timesDevices() const { return false; }
  /// Returns whether it wants to be called for this instruction in a step executed as a whole.
  virtual bool looksAt(schedule::Action::Kind, const program::Instruction &) const { return true; }
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_OBSERVER_H
