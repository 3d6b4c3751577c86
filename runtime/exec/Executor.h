//===- Executor.h - One rank of a Program ----------------------------------===//
//
// Part of tbc. Plain C++. Executes kernels by their reference meaning (runtime/kernels) in any
// arithmetic.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_EXECUTOR_H
#define TBC_RUNTIME_EXEC_EXECUTOR_H

#include "runtime/abi/Program.h"
#include "runtime/comm/Communicator.h"
#include "runtime/exec/Collectives.h"
#include "runtime/exec/RankMemory.h"
#include "runtime/kernels/Kernel.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::runtime {

/// The whole tensor that a file holds under this (ONNX initialiser) name, in the run's arithmetic.
/// May be called from several threads at once. May throw KernelError.
using TensorProvider = std::function<kernels::Tensor(const std::string &name)>;

/// A rank's piece of a tensor: element i is that of row-major index indices[i] of the whole tensor,
/// 0 where that is -1 (padding). The piece has type `local`, in the run's arithmetic. May throw
/// KernelError.
using PieceProvider = std::function<Result<kernels::Tensor>(const program::GlobalTensor &tensor,
                                                            const std::vector<int64_t> &indices,
                                                            const kernels::TensorType &local)>;

/// The same of an input, for one micro-batch.
using InputPieceProvider = std::function<Result<kernels::Tensor>(
    int64_t microBatch, const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
    const kernels::TensorType &local)>;

/// What one step is given from outside.
struct StepInputs {
  /// Where each rank provides for itself: its pieces, instead of `microBatches`.
  InputPieceProvider pieces;
  /// Per micro-batch, by the name of the input: all samples of the micro-batch, over all data
  /// ranks.
  std::vector<std::map<std::string, kernels::Tensor>> microBatches;
  double learningRate = 0;
};

/// One line of the list of collectives of a rank; see program::messageBytes. Slices are left out; a
/// send is counted where it is sent, with the pipeline axis.
struct CollectiveKey {
  program::InstructionKind kind = program::InstructionKind::AllReduce;
  std::string axes; // joined by "+"
  int stage = 0;
  int64_t bytes = 0;
  bool operator<(const CollectiveKey &o) const {
    return std::tie(kind, axes, stage, bytes) < std::tie(o.kind, o.axes, o.stage, o.bytes);
  }
  bool operator==(const CollectiveKey &o) const { return !(*this < o) && !(o < *this); }
};
/// How often each was executed.
using CollectiveCounts = std::map<CollectiveKey, int64_t>;

/// Bytes on one rank, each element in the width of its dtype.
struct MemoryUse {
  int64_t parameterBytes = 0;
  int64_t stateBytes = 0;
  int64_t optimizerStateBytes = 0;
  int64_t gradientBytes = 0;
  /// The most that residuals of all micro-batches in flight took at once.
  int64_t residualPeakBytes = 0;
  /// The most that values produced by the instructions of one block took at once, each from its
  /// instruction to its last use or, if the block results in it, to when that takes effect.
  int64_t valuePeakBytes = 0;
};

/// Executes the blocks of one rank, by the memory plan of its stage if that has one (RankMemory).
/// Used by one thread at a time.
class Executor {
public:
  /// The program must be well formed and outlive the executor. Errors: a kernel that does not
  /// exist.
  static Result<Executor> create(const program::Program &program, int64_t rank,
                                 const kernels::KernelContext &context);

  /// Sets parameters, states and optimizer states to their initial values.
  Status load(const TensorProvider &provider);
  /// The same from the pieces of this rank alone; tensors without an initializer are not asked for.
  Status loadPieces(const PieceProvider &provider);

  /// Runs one step; errors name stage, block, instruction and micro-batch.
  Status runStep(comm::Communicator &communicator, const StepInputs &inputs);

  /// What the rank holds of a global tensor (parameters, states, gradients of the last step), or a
  /// tensor without value if it holds none of it.
  kernels::Tensor held(int tensor) const;
  /// Replaces what the rank holds of a global tensor; the type must be the slot's.
  Status set(int tensor, const kernels::Tensor &value);
  /// The loss of the last step, or a tensor without value if this stage has none.
  kernels::Tensor loss() const;

  int64_t rank() const { return self; }
  int stage() const { return stageIndex; }
  const CollectiveCounts &collectives() const { return counts; }
  MemoryUse memory() const { return use; }

private:
  using Kind = schedule::Action::Kind;
  /// What is worked out once per instruction.
  struct Prepared {
    kernels::KernelFn kernel = nullptr;
    GroupPlace group;
    std::vector<kernels::TensorType> resultTypes;
    std::vector<program::ValueId> lastUses; // values that nothing needs after it
    std::vector<int> results;               // of the block, that take effect after it
  };
  struct PreparedBlock {
    std::vector<Prepared> instructions;
    std::vector<int> resultsBefore, resultsAfter; // that take effect before or after all of them
    std::vector<bool> isArgument;                 // by value
  };

  Executor(const program::Program &program, int64_t rank, const kernels::KernelContext &context);

  Status prepare(program::BlockId block);
  void prepareTimes(program::BlockId block);
  Status loadSlot(size_t slot, const PieceProvider &provider);
  Result<kernels::Tensor> inputPiece(const StepInputs &inputs, int64_t microBatch,
                                     const program::Slot &slot) const;
  void beginStep(const StepInputs &inputs);
  Status loadInputs(const StepInputs &inputs, const schedule::Action &action);
  Status runBlock(comm::Communicator &communicator, const schedule::Action &action);
  Result<std::vector<kernels::Tensor>> operandsOf(const schedule::Action &action, int index) const;
  Result<std::vector<kernels::Tensor>> runInstruction(comm::Communicator &communicator,
                                                      const schedule::Action &action, int index,
                                                      const std::vector<kernels::Tensor> &operands);
  Status writeResults(const schedule::Action &action, const std::vector<int> &results);
  bool writeResult(const schedule::Action &action, const program::BlockResult &result,
                   kernels::Tensor value);
  kernels::Tensor added(const kernels::Tensor &slot, kernels::Tensor value) const;
  void dropRead(const schedule::Action &action);
  void count(const program::Instruction &instruction);
  std::string place(const schedule::Action &action, int index) const;

  const program::Program *program;
  const program::Stage *stageCode;
  int64_t self;
  std::vector<int64_t> coordinates;
  int stageIndex;
  kernels::KernelContext context;
  kernels::Arith arith; // of the context
  std::map<program::BlockId, PreparedBlock> prepared;
  /// Of what lives for a micro-batch: the slots that a block reads; by slot the blocks that do.
  std::map<program::BlockId, std::set<int>> readSlots;
  std::vector<int> numReaders;
  std::map<std::pair<int, int64_t>, int> numReads; // of this step, by slot and micro-batch
  RankMemory contents;
  CollectiveCounts counts;
  MemoryUse use;
  int64_t residualBytes = 0;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_EXECUTOR_H
