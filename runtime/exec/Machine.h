//===- Machine.h - The backend that executes the kernels of a rank ---------===//
//
// Part of tbc. Plain C++. The interface between the `Executor`, which walks a Program, and the
// backend that computes: the reference machine here, the native one in runtime/cpu, the GPU in
// runtime/cuda.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_MACHINE_H
#define TBC_RUNTIME_EXEC_MACHINE_H

#include "runtime/abi/Program.h"
#include "runtime/exec/MemoryCollectives.h"
#include "runtime/exec/Observer.h"
#include "runtime/exec/RankMemory.h"
#include "runtime/exec/SparseSum.h"
#include "runtime/kernels/Kernel.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tbc::runtime {

/// A value written to a slot: it replaces the slot's content or is added to it (in the slot's
/// type).
struct SlotWrite {
  program::ValueId value = 0;
  int slot = 0;
  bool accumulate = false;
};

/// Thrown by a machine when its device fails: an error with its code.
class MachineError : public kernels::KernelError {
public:
  explicit MachineError(const Error &error)
      : kernels::KernelError(error.message), errorCode(error.code) {}
  ErrorCode code() const { return errorCode; }

private:
  ErrorCode errorCode;
};

/// How a machine executes a training step.
enum class StepWay {
  Execute, // instruction by instruction
  Record,  // the same calls, but nothing runs before `endRecording`
  Replay,  // stores the step's inputs, then calls `replay`
};

/// The accumulated time of the kernels of one op.
struct KernelShare {
  std::string op;
  bool isReference = false; // executed by its reference kernel, as there is no better one
  int64_t count = 0;
  double seconds = 0;
};

/// Executes kernels on the contents of a `RankMemory`. Its functions may throw KernelError; the
/// executor adds the place to the message.
class Machine {
public:
  virtual ~Machine() = default;

  /// Prepares the kernels of a block once. Errors: Usage, an unknown kernel.
  virtual Status prepare(program::BlockId block) = 0;

  /// Returns how many instructions of the block one call of `run` executes, starting at kernel
  /// `index`; at least 1.
  virtual int numAtOnce(program::BlockId block, int index) const { return 1; }

  /// Executes kernel `index` of the current block, together with the others of `numAtOnce`.
  /// Operands have values; results become defined.
  virtual void run(program::BlockId block, int index) = 0;

  /// Writes to slots of the block's micro-batch. All values count as read before any slot is
  /// written. An accumulated slot already holds a value.
  virtual void write(const std::vector<SlotWrite> &writes) = 0;

  /// Begins a block: the following calls belong to it until `endBlock`. All earlier calls finish
  /// before them.
  virtual void beginBlock(program::BlockId block) {}
  /// Ends the block: all its instructions finish before the following calls.
  virtual void endBlock(program::BlockId block) {}

  /// Executes a communication, slice or copy of the block on the machine's own memory and defines
  /// its results. Later `run` and `write` calls are ordered after it by the streams and waits of
  /// the Program. Errors name `place`. Returns false if the machine cannot do it; the executor then
  /// does.
  virtual Result<bool> communicate(comm::Communicator &communicator, program::BlockId block,
                                   int index, const GroupPlace &group, const MemoryLayout &layout,
                                   const std::string &place) {
    return false;
  }

  /// Makes `communicate` send only the largest elements of this sum from now on. Residuals,
  /// initially 0, are in the machine's memory. `layout` outlives the machine. Returns false if the
  /// machine does not communicate; the executor then does it. Errors: Usage, if the Program lacks
  /// the needed parts; RankFailed, if memory is short.
  virtual Result<bool> compress(program::BlockId block, int index, const SparseLayout &layout) {
    return false;
  }
  /// Gets or replaces the residuals of a compressed sum (`SparseSum`).
  virtual std::vector<float> residuals(program::BlockId block, int index) const { return {}; }
  virtual void setResiduals(program::BlockId block, int index, const std::vector<float> &elements) {
  }

  /// Returns whether another thread may communicate at the same time. The other thread reads and
  /// defines only values of the `RankMemory` not used by a running call of the machine. Calls of
  /// the machine itself are serialized, from either thread.
  virtual bool allowsCommunicationThread() const { return false; }

  /// Begins a training step; earlier calls finish before it. `mayBeWhole`: values are read before
  /// its end only through `keep`. Not called for the forward blocks of an evaluation.
  virtual StepWay beginStep(bool mayBeWhole) { return StepWay::Execute; }
  /// While a step is recorded: keeps the current content of `value`, which was just defined, for
  /// `kept` after each replay. Returns its id.
  virtual int keep(program::ValueId value) { return -1; }
  /// Returns a kept value of the last executed step.
  virtual kernels::Tensor kept(int number) { return {}; }
  /// Ends a recording after all calls of the step, or after the error in `walked`. All ranks call
  /// it. Returns true if the recorded step is now running. Returns false if nothing was executed;
  /// the executor then executes the step by calls. Errors: those of the communicator; RankFailed if
  /// the user required recording.
  virtual Result<bool> endRecording(comm::Communicator &communicator, const Status &walked) {
    return false;
  }
  virtual void replay() {}

  /// Makes a device time the instructions from now on, until called with false. Each costs some
  /// microseconds more. Called before steps that are executed by calls.
  virtual void timeInstructions(bool isOn) {}
  /// Returns the span of the last `run` or `communicate`; null if it was not timed by a device.
  virtual std::shared_ptr<const DeviceSpan> lastSpan() const { return nullptr; }

  /// Returns the times by op; empty if they are not measured. A device measures those of
  /// `timeInstructions` alone.
  virtual std::vector<KernelShare> shares() const { return {}; }

  /// Returns the bytes in use on its device, by all processes; -1 if its memory is that of the
  /// process.
  virtual int64_t deviceBytesTaken() const { return -1; }
};

/// The arguments of a machine; they outlive it.
struct MachineSetting {
  const program::Program &program;
  int stage;
  RankMemory &memory;
  kernels::KernelContext context;
};

/// Errors: Usage, a Program that the machine cannot execute.
using MachineMaker = std::function<Result<std::unique_ptr<Machine>>(const MachineSetting &)>;

/// Returns the machine that executes every kernel by its reference implementation
/// (runtime/kernels), in any arithmetic.
Result<std::unique_ptr<Machine>> makeReferenceMachine(const MachineSetting &setting);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_MACHINE_H
