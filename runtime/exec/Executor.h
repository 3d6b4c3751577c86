//===- Executor.h - One rank of a Program ----------------------------------===//
//
// Part of tbc. Plain C++. The `Executor` walks the schedule and the blocks; a `Machine` executes
// the kernels.
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

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::runtime {

/// Returns the whole tensor stored under an ONNX initializer's name, in the run's arithmetic. May
/// be called from several threads at once. May throw KernelError.
using TensorProvider = std::function<kernels::Tensor(const std::string &name)>;

/// Returns a rank's piece of a tensor, of type `local`, in the run's arithmetic. Element i of the
/// piece has row-major index indices[i] in the whole tensor; it is 0 if that index is -1 (padding).
/// Example: indices {4, 5, -1} give elements 4 and 5 and a zero. May throw KernelError.
using PieceProvider = std::function<Result<kernels::Tensor>(const program::GlobalTensor &tensor,
                                                            const std::vector<int64_t> &indices,
                                                            const kernels::TensorType &local)>;

/// The same for an input, for one micro-batch.
using InputPieceProvider = std::function<Result<kernels::Tensor>(
    int64_t microBatch, const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
    const kernels::TensorType &local)>;

/// The data of one step that comes from outside.
struct StepInputs {
  /// If set, each rank provides its own pieces and `microBatches` is unused. It is called on up to
  /// `numThreads` threads at once, for large inputs part by part, with flat types.
  InputPieceProvider pieces;
  int numThreads = 1;
  /// Per micro-batch, by input name: all samples of the micro-batch, over all data ranks.
  std::vector<std::map<std::string, kernels::Tensor>> microBatches;
  double learningRate = 0;
};

/// Decides whether the update of a step is applied. It is called on every rank before the update,
/// when the loss is complete (a tensor without value on stages without a loss). All ranks must
/// return the same answer.
using UpdateGate = std::function<Result<bool>(const kernels::Tensor &loss)>;

/// The key of one line in a rank's list of collectives; see program::messageBytes. Slices are not
/// counted. A send is counted on the sending stage, with the pipeline axis.
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
/// The number of executions per key.
using CollectiveCounts = std::map<CollectiveKey, int64_t>;

/// Bytes on one rank. Each element takes the width of its dtype.
struct MemoryUse {
  int64_t parameterBytes = 0;
  int64_t stateBytes = 0;
  int64_t optimizerStateBytes = 0;
  int64_t gradientBytes = 0;
  /// Bytes on the host. They are not part of the fields above and below.
  int64_t hostOptimizerStateBytes = 0;
  int64_t hostResidualPeakBytes = 0;
  /// The peak of all residuals on the device, over all micro-batches in flight.
  int64_t residualPeakBytes = 0;
  /// The peak of the values produced within one block. A value lives from its instruction to its
  /// last use or, for a block result, until the result takes effect.
  int64_t valuePeakBytes = 0;
};

/// Executes the blocks of one rank, by the memory plan of its stage if there is one (`RankMemory`).
/// One thread at a time uses it and executes the kernels. If a block's communication stream can run
/// beside kernels, a separate thread executes it.
class Executor {
public:
  /// Makes the executor of a rank. The program must be well formed and outlive it. Errors: those of
  /// the machine; an unknown kernel.
  static Result<Executor> create(const program::Program &program, int64_t rank,
                                 const kernels::KernelContext &context,
                                 const MachineMaker &makeMachine = makeReferenceMachine);

  /// Sets parameters, states and optimizer states to their initial values.
  Status load(const TensorProvider &provider);
  /// The same from this rank's pieces alone. Tensors without an initializer are not requested.
  /// `provider` is called on up to `numThreads` threads at once, for large tensors part by part,
  /// with flat types.
  Status loadPieces(const PieceProvider &provider, int numThreads = 1);

  /// Makes gradient sums over data-parallel ranks (`gradientReductions`) travel as bf16 from now
  /// on. Every rank rounds its terms to bf16, the communicator adds them as bf16, and every rank
  /// gets the sums in f32. Errors: Usage, unless floats are computed in Native arithmetic in this
  /// process's memory.
  Status sumGradientsInBF16();
  /// Makes only this share, in (0, 1], of each tensor of these sums travel from now on. Each rank
  /// keeps the rest as a residual for the next step (`SparseSum`). Example: share 0.01 of 1,000,000
  /// elements sends 10,000 of them. Errors: Usage, as above or with the reason from
  /// `whyNotCompressed`.
  Status compressGradients(double share);
  /// Returns the number of residual elements that this rank keeps between steps, by the place of
  /// the sum in the program. Only compressed sums are listed.
  std::map<std::string, size_t> gradientResiduals() const;
  /// Gets or replaces the residual of the sum at `place`; the size must stay the same. KernelError
  /// if the machine has lost its memory.
  std::vector<float> gradientResidual(const std::string &place) const;
  void setGradientResidual(const std::string &place, std::vector<float> residual);

  /// Runs one step. Errors name the stage, block, instruction and micro-batch.
  Status runStep(comm::Communicator &communicator, const StepInputs &inputs);
  /// Runs one step, but `gate` decides on the update. If it refuses, parameters, states and
  /// optimizer states stay as before the step. The loss is completed twice, so its collectives run
  /// twice. A machine does not record or replay such a step.
  Status runGatedStep(comm::Communicator &communicator, const StepInputs &inputs,
                      const UpdateGate &gate);
  /// Returns whether the gradients on this rank are all finite after the backward blocks.
  bool areGradientsFinite() const;

  /// Runs the forward blocks of a step and completes its loss as `runStep` does. Parameters and
  /// optimizer states do not change; gradients are zero. Residuals are dropped as soon as the
  /// forward blocks of their micro-batch are done. Errors: as `runStep`; Usage if forward blocks
  /// write states.
  Status runForward(comm::Communicator &communicator, const StepInputs &inputs);

  /// Calls `observer` for everything executed from now on. It must outlive the executor.
  void observe(Observer &observer) { observers.push_back(&observer); }

  /// Returns this rank's piece of a global tensor (parameter, state, or gradient of the last step).
  /// It has no value if the rank holds no piece. KernelError if the machine has lost its memory.
  kernels::Tensor held(int tensor) const;
  /// Replaces this rank's piece of a global tensor; the type must be the slot's.
  Status set(int tensor, const kernels::Tensor &value);
  /// Returns the loss of the last step, without value on stages without a loss. KernelError: as for
  /// `held`.
  kernels::Tensor loss() const;

  int64_t rank() const { return self; }
  int stage() const { return stageIndex; }
  const CollectiveCounts &collectives() const { return counts; }
  MemoryUse memory() const { return use; }
  std::vector<KernelShare> kernelShares() const { return machine->shares(); }
  int64_t deviceBytesTaken() const { return machine->deviceBytesTaken(); } // see Machine

private:
  using Kind = schedule::Action::Kind;
  /// Computed once per instruction.
  struct Prepared {
    GroupPlace group;                       // for communication
    MemoryLayout layout;                    // for communication and slices
    bool isNarrow = false;                  // f32 sum sent as bf16; `layout` is then for bf16
    std::unique_ptr<SparseLayout> sparse;   // for a compressed sum
    std::unique_ptr<SparseSum> sparseSum;   // if the machine does not execute it
    std::vector<program::ValueId> lastUses; // values without a use after it
    std::vector<int> results;               // of the block, taking effect after it
  };
  struct PreparedBlock {
    std::vector<Prepared> instructions;
    std::vector<int> resultsBefore, resultsAfter;  // taking effect before or after all of them
    std::vector<int> streams[program::numStreams]; // instructions of each, in order
    bool isOverlapped = false;                     // communication may run beside a kernel
    int64_t peakBytes = 0;                         // MemoryUse::valuePeakBytes
  };

  Executor(const program::Program &program, int64_t rank, kernels::Arith arith);

  Status prepare(program::BlockId block);
  Status checkOwnPrecision(const std::string &what) const;
  const Prepared *findSparse(const std::string &place, program::BlockId &block, int &index) const;
  void prepareTimes(program::BlockId block);
  std::vector<kernels::TensorType> typesOf(const std::vector<program::ValueId> &values) const;
  int64_t valuePeakBytes(const program::Block &block, const std::vector<int> &lastUse) const;
  Status loadParts(const PieceProvider &provider, int numThreads, int64_t elementsPerPart);
  /// Tensors that other threads make part by part.
  struct Parts {
    /// Elements `begin` and following of a slot; `what` is for errors.
    struct Part {
      int slot = 0;
      int64_t microBatch = 0, begin = 0;
      bool isWhole = false;
      std::string what;
      std::future<Result<kernels::Tensor>> elements;
    };
    int numThreads = 1;
    int64_t elementsPerPart = int64_t(1) << 20; // small enough to reuse memory
    std::deque<Part> ahead;
  };
  using PartMaker = std::function<Result<kernels::Tensor>(const std::vector<int64_t> &indices,
                                                          const kernels::TensorType &type)>;
  Status addParts(Parts &parts, int slot, int64_t microBatch, const std::string &what,
                  const PartMaker &make);
  Status finishParts(Parts &parts, size_t mostLeft);
  Result<kernels::Tensor> inputPiece(const StepInputs &inputs, int64_t microBatch,
                                     const program::GlobalTensor &tensor,
                                     const std::vector<int64_t> &indices,
                                     const kernels::TensorType &type) const;
  Status checkInputs(const StepInputs &inputs) const;
  Status beginStep(const StepInputs &inputs);
  Status walkStep(comm::Communicator &communicator, const StepInputs &inputs,
                  const UpdateGate *gate = nullptr);
  Result<bool> askGate(comm::Communicator &communicator, const UpdateGate &gate);
  std::map<int, kernels::Tensor> slotsOf(program::Role role) const;
  void putBack(const std::map<int, kernels::Tensor> &slots);
  void timeInstructions();
  Status recordStep(comm::Communicator &communicator, const StepInputs &inputs);
  Status replayStep(const StepInputs &inputs);
  Status keepFor(Observer &observer, const schedule::Action &action, int first, int end);
  Status tellKept();
  Status loadInputs(const StepInputs &inputs, const schedule::Action &action);
  /// Saves the slots that a partial run of the update would overwrite in place. `part` selects the
  /// executed instructions; slots of role Loss are left out.
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
  /// Returns the counter of residual bytes for the slot's memory, device or host.
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
  /// For slots that live for a micro-batch: the slots read by each block, and the number of reading
  /// blocks by slot.
  std::map<program::BlockId, std::set<int>> readSlots;
  std::vector<int> numReaders;
  std::vector<bool> startsAtZero;                  // by slot: micro-batches read it or add to it
  std::map<std::pair<int, int64_t>, int> numReads; // in this step, by slot and micro-batch
  std::unique_ptr<RankMemory> contents;            // its address is known to the machine
  std::unique_ptr<Machine> machine;
  std::vector<Observer *> observers;
  CollectiveCounts counts;
  MemoryUse use;
  /// An observed instruction range of a step that the machine records or replays.
  struct Kept {
    Observer *observer;
    schedule::Action action;
    int first, end;
    std::map<program::ValueId, int> numbers; // the machine's ids of the kept values
  };
  bool isRecording = false;
  std::vector<Kept> keptValues;
  CollectiveCounts recordedCounts;
  int64_t residualBytes = 0, hostResidualBytes = 0;
  std::unique_ptr<StreamThread> communicationThread; // created on first use
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_EXECUTOR_H
