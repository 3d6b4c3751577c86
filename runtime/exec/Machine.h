//===- Machine.h - What executes the kernels of a rank ---------------------===//
//
// Part of tbc. Plain C++. The seam between the Executor, which walks a Program, and what computes:
// the reference machine here, the native one in runtime/cpu.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_MACHINE_H
#define TBC_RUNTIME_EXEC_MACHINE_H

#include "runtime/abi/Program.h"
#include "runtime/exec/MemoryCollectives.h"
#include "runtime/exec/RankMemory.h"
#include "runtime/exec/SparseSum.h"
#include "runtime/kernels/Kernel.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tbc::runtime {

/// A value that a slot takes: over what it held, or added to it (in the slot's type).
struct SlotWrite {
  program::ValueId value = 0;
  int slot = 0;
  bool accumulate = false;
};

/// What a machine throws where its device fails: an error with its code.
class MachineError : public kernels::KernelError {
public:
  explicit MachineError(const Error &error)
      : kernels::KernelError(error.message), errorCode(error.code) {}
  ErrorCode code() const { return errorCode; }

private:
  ErrorCode errorCode;
};

/// How a machine takes a step of training.
enum class StepWay {
  Execute, // instruction by instruction
  Record,  // the same calls; nothing is executed before `endRecording`
  Replay,  // as recorded: what the step is given from outside is stored, then `replay` called
};

/// What the kernels of one op took so far.
struct KernelShare {
  std::string op;
  bool isReference = false; // executed by its reference kernel, for want of a better one
  int64_t count = 0;
  double seconds = 0;
};

/// Executes kernels on what a RankMemory holds. Its functions may throw KernelError; the executor
/// says where that was.
class Machine {
public:
  virtual ~Machine() = default;

  /// Works out once how the kernels of a block are executed. Errors: Usage, one that does not
  /// exist.
  virtual Status prepare(program::BlockId block) = 0;

  /// How many instructions of the block, from kernel `index` on, are executed by one call of `run`;
  /// at least 1.
  virtual int numAtOnce(program::BlockId block, int index) const { return 1; }

  /// Executes kernel `index` of the block under way (and those that go with it): defines their
  /// results from their operands, which have values.
  virtual void run(program::BlockId block, int index) = 0;

  /// Writes to instances of the block's micro-batch, as if all values were read before any slot is
  /// written. A slot that is added to holds something.
  virtual void write(const std::vector<SlotWrite> &writes) = 0;

  /// What follows is of this block, until `endBlock`; all that was called before is done before it.
  virtual void beginBlock(program::BlockId block) {}
  /// All of the block's instructions are done before what follows.
  virtual void endBlock(program::BlockId block) {}

  /// Executes a communication, slice or copy of the block on memory of the machine's own and
  /// defines its results; what `run` and `write` are called for later is in order with it, by the
  /// streams and waits of the Program. `place` is for errors. False: the machine cannot, and the
  /// executor does it.
  virtual Result<bool> communicate(comm::Communicator &communicator, program::BlockId block,
                                   int index, const GroupPlace &group, const MemoryLayout &layout,
                                   const std::string &place) {
    return false;
  }

  /// From now on `communicate` of this sum sends the largest elements alone, and keeps residuals in
  /// memory of the machine's own, 0 at first. `layout` outlives the machine. False: the machine
  /// does not communicate, and the executor does it. Errors: Usage, the Program lacks what that
  /// takes; RankFailed, of memory.
  virtual Result<bool> compress(program::BlockId block, int index, const SparseLayout &layout) {
    return false;
  }
  /// The residuals of such a sum, and others in place of them (SparseSum).
  virtual std::vector<float> residuals(program::BlockId block, int index) const { return {}; }
  virtual void setResiduals(program::BlockId block, int index, const std::vector<float> &elements) {
  }

  /// Whether another thread may communicate meanwhile: read values from the RankMemory and define
  /// others, which no call of the machine that is under way is about. Calls of the machine itself
  /// follow each other, whichever thread makes them.
  virtual bool allowsCommunicationThread() const { return false; }

  /// A step of training comes; what was called before is done before it. `mayBeWhole`: nobody looks
  /// at values before its end but by `keep`. Not called before the forward blocks of an evaluation.
  virtual StepWay beginStep(bool mayBeWhole) { return StepWay::Execute; }
  /// While a step is recorded: what `value`, which was just defined, holds now, for `kept` after
  /// each replay: its number.
  virtual int keep(program::ValueId value) { return -1; }
  /// Of the step that was executed last.
  virtual kernels::Tensor kept(int number) { return {}; }
  /// All of the step was called for, or until an error, `walked`. All ranks call it. True: the step
  /// is under way as it was recorded. False: none of it was executed, and will be when it is called
  /// for again. Errors: of the communicator; RankFailed, where recording is what was asked for.
  virtual Result<bool> endRecording(comm::Communicator &communicator, const Status &walked) {
    return false;
  }
  virtual void replay() {}

  /// By op; empty where nobody measures.
  virtual std::vector<KernelShare> shares() const { return {}; }

  /// Bytes of its device that are taken now, by all processes on it; -1 where its memory is that of
  /// the process.
  virtual int64_t deviceBytesTaken() const { return -1; }
};

/// What a machine works on; outlives it.
struct MachineSetting {
  const program::Program &program;
  int stage;
  RankMemory &memory;
  kernels::KernelContext context;
};

/// Errors: Usage, a Program that the machine cannot execute.
using MachineMaker = std::function<Result<std::unique_ptr<Machine>>(const MachineSetting &)>;

/// The machine that executes every kernel by its reference meaning (runtime/kernels), in any
/// arithmetic.
Result<std::unique_ptr<Machine>> makeReferenceMachine(const MachineSetting &setting);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_MACHINE_H
