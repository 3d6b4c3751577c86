//===- Observer.h - Who sees what an executor does -------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_OBSERVER_H
#define TBC_RUNTIME_EXEC_OBSERVER_H

#include "runtime/abi/Program.h"

#include <chrono>
#include <functional>

namespace tbc::runtime {

/// Instructions `first` to `end` of a block, executed at once: one, or those of a region.
struct Executed {
  const program::Stage &stage;
  const schedule::Action &action;
  int first = 0, end = 0;
  std::chrono::steady_clock::time_point begin, finish;
  /// What one of their results holds; a tensor without value where it is nowhere (inside a region).
  std::function<kernels::Tensor(program::ValueId)> value;

  const program::Instruction &instruction(int index) const {
    return stage.block(action).instructions[index];
  }
};

/// Is told of all that an executor has executed, on the thread that did it.
class Observer {
public:
  virtual ~Observer() = default;
  /// An error ends the step.
  virtual Status executed(const Executed &executed) = 0;

  /// Whether it has to be told while the step is under way; asked before each step. If nobody has
  /// to, a machine may execute the step as a whole, and who looks at an instruction is told of it
  /// afterwards.
  virtual bool looksAtOnce() const { return true; }
  /// Whether it then wants to be told of this instruction.
  virtual bool looksAt(schedule::Action::Kind, const program::Instruction &) const { return true; }
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_OBSERVER_H
