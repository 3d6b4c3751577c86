//===- Executor.h - One rank of a Program ----------------------------------===//
//
// Part of tbc. Plain C++. Walks the schedule and the blocks; a Machine executes the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_EXECUTOR_H
#define TBC_RUNTIME_EXEC_EXECUTOR_H

#include "runtime/abi/Program.h"
#include "runtime/comm/Communicator.h"
#include "runtime/exec/Collectives.h"
#include "runtime/exec/Machine.h"
#include "runtime/exec/MemoryCollectives.h"
#include "runtime/exec/Observer.h"
#include "runtime/exec/RankMemory.h"
#include "runtime/exec/StreamThread.h"

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

/// Asked on every rank before the update of a step, when the loss of the step is complete (without
/// value on stages that have none): whether the update is applied. All ranks give one answer.
using UpdateGate = std::function<Result<bool>(const kernels::Tensor &loss)>;

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
  /// Of these, on the host and not counted above; of residuals as below.
  int64_t hostOptimizerStateBytes = 0;
  int64_t hostResidualPeakBytes = 0;
  /// The most that residuals of all micro-batches in flight took at once.
  int64_t residualPeakBytes = 0;
  /// The most that values produced by the instructions of one block took at once, each from its
  /// instruction to its last use or, if the block results in it, to when that takes effect.
  int64_t valuePeakBytes = 0;
};

/// Executes the blocks of one rank, by the memory plan of its stage if that has one (RankMemory).
/// Used by one thread at a time, which executes the kernels; a thread of its own executes the
/// communication stream of blocks in which that can run beside kernels.
class Executor {
public:
  /// The program must be well formed and outlive the executor. Errors: those of the machine, a
  /// kernel that does not exist.
  static Result<Executor> create(const program::Program &program, int64_t rank,
                                 const kernels::KernelContext &context,
                                 const MachineMaker &makeMachine = makeReferenceMachine);

  /// Sets parameters, states and optimizer states to their initial values.
  Status load(const TensorProvider &provider);
  /// The same from the pieces of this rank alone; tensors without an initializer are not asked for.
  Status loadPieces(const PieceProvider &provider);

  /// From now on sums of gradients over ranks that have other data (gradientReductions) travel as
  /// bf16: every rank's terms are rounded to it, added as the communicator adds bf16, and the sums
  /// are what all have, in f32. Errors: Usage, where floats are not computed in Native arithmetic
  /// in the memory of this process.
  Status sumGradientsInBF16();
  /// From now on of these sums only this share of (0, 1] of each tensor travels, and each rank
  /// keeps the rest for the next (SparseSum). Errors: Usage, as above, and what whyNotCompressed
  /// says.
  Status compressGradients(double share);
  /// How many elements this rank keeps back between steps, by the place of the sum in the program;
  /// of those sums alone that travel compressed.
  std::map<std::string, size_t> gradientResiduals() const;
  /// What it keeps back at such a place; as many elements in place of them. KernelError if the
  /// machine has lost its memory.
  std::vector<float> gradientResidual(const std::string &place) const;
  void setGradientResidual(const std::string &place, std::vector<float> residual);

  /// Runs one step; errors name stage, block, instruction and micro-batch.
  Status runStep(comm::Communicator &communicator, const StepInputs &inputs);
  /// The same, but that `gate` decides on the update. Where it says no, parameters, states and
  /// optimizer states are what they were before the step. The loss is completed twice, so that its
  /// collectives are made twice; a machine does not take such a step as a whole.
  Status runGatedStep(comm::Communicator &communicator, const StepInputs &inputs,
                      const UpdateGate &gate);
  /// Whether the gradients that this rank holds after the backward blocks are all numbers.
  bool areGradientsFinite() const;

  /// Runs the forward blocks of a step and completes its loss as `runStep` does: no parameter and
  /// no optimizer state changes, gradients are zero. Residuals are dropped as soon as the forward
  /// blocks of their micro-batch are done. Errors: as of runStep; Usage, where forward blocks write
  /// states.
  Status runForward(comm::Communicator &communicator, const StepInputs &inputs);

  /// From now on `observer`, which outlives this, is told of what is executed.
  void observe(Observer &observer) { observers.push_back(&observer); }

  /// What the rank holds of a global tensor (parameters, states, gradients of the last step), or a
  /// tensor without value if it holds none of it. KernelError if the machine has lost its memory.
  kernels::Tensor held(int tensor) const;
  /// Replaces what the rank holds of a global tensor; the type must be the slot's.
  Status set(int tensor, const kernels::Tensor &value);
  /// The loss of the last step, or a tensor without value if this stage has none. KernelError: as
  /// for `held`.
  kernels::Tensor loss() const;

  int64_t rank() const { return self; }
  int stage() const { return stageIndex; }
  const CollectiveCounts &collectives() const { return counts; }
  MemoryUse memory() const { return use; }
  std::vector<KernelShare> kernelShares() const { return machine->shares(); }
  int64_t deviceBytesTaken() const { return machine->deviceBytesTaken(); } // as of Machine

private:
  using Kind = schedule::Action::Kind;
  /// What is worked out once per instruction.
  struct Prepared {
    GroupPlace group;                       // of communication
    MemoryLayout layout;                    // of communication and slices
    bool isNarrow = false;                  // a sum of f32 that travels as bf16; so is its layout
    std::unique_ptr<SparseLayout> sparse;   // of a sum of which a share travels
    std::unique_ptr<SparseSum> sparseSum;   // where the machine does not do it
    std::vector<program::ValueId> lastUses; // values that nothing needs after it
    std::vector<int> results;               // of the block, that take effect after it
  };
  struct PreparedBlock {
    std::vector<Prepared> instructions;
    std::vector<int> resultsBefore, resultsAfter;  // that take effect before or after all of them
    std::vector<int> streams[program::numStreams]; // instructions of each, in order
    bool isOverlapped = false;                     // something may run beside a kernel
    int64_t peakBytes = 0;                         // MemoryUse::valuePeakBytes
  };

  Executor(const program::Program &program, int64_t rank, kernels::Arith arith);

  Status prepare(program::BlockId block);
  Status checkOwnPrecision(const std::string &what) const;
  const Prepared *findSparse(const std::string &place, program::BlockId &block, int &index) const;
  void prepareTimes(program::BlockId block);
  std::vector<kernels::TensorType> typesOf(const std::vector<program::ValueId> &values) const;
  int64_t valuePeakBytes(const program::Block &block, const std::vector<int> &lastUse) const;
  Status loadSlot(size_t slot, const PieceProvider &provider);
  Result<kernels::Tensor> inputPiece(const StepInputs &inputs, int64_t microBatch,
                                     const program::Slot &slot) const;
  Status checkInputs(const StepInputs &inputs) const;
  Status beginStep(const StepInputs &inputs);
  Status walkStep(comm::Communicator &communicator, const StepInputs &inputs,
                  const UpdateGate *gate = nullptr);
  Result<bool> askGate(comm::Communicator &communicator, const UpdateGate &gate);
  std::map<int, kernels::Tensor> slotsOf(program::Role role) const;
  void putBack(const std::map<int, kernels::Tensor> &slots);
  Status recordStep(comm::Communicator &communicator, const StepInputs &inputs);
  Status replayStep(const StepInputs &inputs);
  Status keepFor(Observer &observer, const schedule::Action &action, int first, int end);
  Status tellKept();
  Status loadInputs(const StepInputs &inputs, const schedule::Action &action);
  /// Of its instructions only those of `part`, if given, and its results to slots of role Loss.
  std::map<int, kernels::Tensor> overwritten(const std::vector<bool> &part) const;
  Status runBlock(comm::Communicator &communicator, const schedule::Action &action,
                  const std::vector<bool> *part = nullptr);
  Status runInOrder(comm::Communicator &communicator, const schedule::Action &action,
                    const std::vector<bool> *part);
  Status runSideBySide(comm::Communicator &communicator, const schedule::Action &action);
  Status runCommunication(comm::Communicator &communicator, const schedule::Action &action,
                          StreamProgress &progress);
  Status runKernels(comm::Communicator &communicator, const schedule::Action &action,
                    StreamProgress &progress);
  Status tellMachine(const schedule::Action &action, void (Machine::*function)(program::BlockId));
  Status tell(const schedule::Action &action, int first, int end,
              std::chrono::steady_clock::time_point begin);
  Status settle(const schedule::Action &action, int index, const std::vector<bool> *part);
  Status writePart(const schedule::Action &action, std::vector<int> results,
                   const std::vector<bool> *part);
  Status checkOperands(const schedule::Action &action, int begin, int end) const;
  Result<int> runInstructions(comm::Communicator &communicator, const schedule::Action &action,
                              int index);
  Status communicateOne(comm::Communicator &communicator, const schedule::Action &action,
                        int index);
  Status communicateBytes(comm::Communicator &communicator, const schedule::Action &action,
                          int index);
  Status communicateTensors(comm::Communicator &communicator, const schedule::Action &action,
                            int index);
  Status writeResults(const schedule::Action &action, const std::vector<int> &results);
  void dropRead(const schedule::Action &action);
  void drop(int slot, int64_t microBatch);
  /// Of residuals where the slot is.
  int64_t &residualBytesOf(const program::Slot &slot) {
    return slot.location == program::Location::Host ? hostResidualBytes : residualBytes;
  }
  void count(const program::Instruction &instruction, const Prepared &ready);
  std::string place(const schedule::Action &action, int index) const;

  const program::Program *program;
  const program::Stage *stageCode;
  int64_t self;
  std::vector<int64_t> coordinates;
  int stageIndex;
  kernels::Arith arith;
  std::map<program::BlockId, PreparedBlock> prepared;
  /// Of what lives for a micro-batch: the slots that a block reads; by slot the blocks that do.
  std::map<program::BlockId, std::set<int>> readSlots;
  std::vector<int> numReaders;
  std::map<std::pair<int, int64_t>, int> numReads; // of this step, by slot and micro-batch
  std::unique_ptr<RankMemory> contents;            // of which the machine knows the place
  std::unique_ptr<Machine> machine;
  std::vector<Observer *> observers;
  CollectiveCounts counts;
  MemoryUse use;
  /// Of a step that the machine records or replays.
  struct Kept {
    Observer *observer;
    schedule::Action action;
    int first, end;
    std::map<program::ValueId, int> numbers; // by which the machine knows them
  };
  bool isRecording = false;
  std::vector<Kept> keptValues;
  CollectiveCounts recordedCounts;
  int64_t residualBytes = 0, hostResidualBytes = 0;
  std::unique_ptr<StreamThread> communicationThread; // when it is first needed
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_EXECUTOR_H
