//===- RankOnDevice.h - The backend of a rank on its GPU --------------------===//
//
// Part of tbc. Plain C++. See CudaMachine.h, which makes it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_RANKONDEVICE_H
#define TBC_RUNTIME_CUDA_RANKONDEVICE_H

#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/DeviceArena.h"
#include "runtime/cuda/DeviceSparseSum.h"
#include "runtime/cuda/DeviceTimes.h"
#include "runtime/cuda/LibraryCalls.h"

#include <array>

namespace tbc::cuda {

/// Throws an error as a machine does.
inline void require(const Status &status) {
  if (!status)
    throw runtime::MachineError(status.error());
}

class CudaMachine : public runtime::Machine {
public:
  CudaMachine(const runtime::MachineSetting &setting, const CudaOptions &options,
              std::shared_ptr<Streams> streams, const DeviceArena &arena,
              std::unique_ptr<Machine> reference, std::shared_ptr<Matmuls> matmuls,
              std::shared_ptr<CudnnPlans> plans, std::shared_ptr<Fp8Matmuls> fp8, StepGraphs graphs,
              const PinnedArena &hostArena)
      : program(setting.program), stage(setting.stage), code(program.stages[stage]),
        memory(setting.memory), options(options), arith(setting.context.arith),
        device(*options.device), streams(std::move(streams)), arena(arena), hostArena(hostArena),
        reference(std::move(reference)),
        libraries(setting.program, setting.stage, std::move(matmuls), std::move(plans),
                  std::move(fp8)),
        graphs(std::move(graphs)), times(options.device, this->streams) {}

  ~CudaMachine() override {
    // The freed objects belong to the device. If the device is lost, so are they.
    static_cast<void>(device.makeCurrent());
    // The communicator may be destroyed next, and so may the memory plan with its host part. Copies
    // may still be running there even without communication.
    streams->end();
    DeviceCommunicator *communicator = streams->unwatch();
    if (!device.isGivenUp())
      static_cast<void>(streams->wait());
    if (communicator && options.registrar)
      communicator->deregisterAll();
    streams->forgetRecording(); // NCCL waits for the end of graphs
  }

  Status prepare(program::BlockId id) override;
  int numAtOnce(program::BlockId id, int index) const override {
    return prepared.at(id).instructions[index].count;
  }
  void run(program::BlockId id, int index) override;
  void write(const std::vector<runtime::SlotWrite> &writes) override;
  void beginBlock(program::BlockId id) override;
  void endBlock(program::BlockId id) override;
  Result<bool> communicate(comm::Communicator &communicator, program::BlockId id, int index,
                           const runtime::GroupPlace &group, const runtime::MemoryLayout &layout,
                           const std::string &place) override;
  int64_t deviceBytesTaken() const override {
    size_t freeBytes = 0, totalBytes = 0;
    Status asked = device.makeCurrent();
    if (asked)
      asked = device.check(device.driver().memGetInfo(&freeBytes, &totalBytes), "its memory");
    if (!asked)
      throw runtime::MachineError(asked.error());
    return int64_t(totalBytes - freeBytes);
  }
  Result<bool> compress(program::BlockId id, int index,
                        const runtime::SparseLayout &layout) override;
  std::vector<float> residuals(program::BlockId id, int index) const override;
  void setResiduals(program::BlockId id, int index, const std::vector<float> &elements) override;
  runtime::StepWay beginStep(bool mayBeWhole) override { return graphs.begin(mayBeWhole); }
  int keep(program::ValueId value) override;
  kernels::Tensor kept(int number) override;
  Result<bool> endRecording(comm::Communicator &communicator, const Status &walked) override;
  void replay() override { graphs.replay(); }
  void timeInstructions(bool isOn) override {
    if (isOn || times.isOn())
      require(times.turn(isOn));
  }
  std::shared_ptr<const runtime::DeviceSpan> lastSpan() const override { return times.last(); }
  std::vector<runtime::KernelShare> shares() const override;

private:
  /// An instruction, or a region at its first instruction.
  struct Prepared {
    const LaunchableKernel *kernel = nullptr; // null: executed on the host
    const LibraryCalls::Call *call = nullptr; // replaces the kernel
    bool isLeftOut = false;                   // the call of a later region executes it
    int count = 1;
    std::vector<program::ValueId> operands, results;
    std::string place; // for errors that show later
  };
  struct PreparedBlock {
    std::vector<Prepared> instructions;
    /// The ends of instructions that others wait for.
    std::map<int, Event> ends;
    bool isCommunicating = false; // it uses the communication stream
    bool isCopying = false;       // to the host or back
    Event begun;                  // its begin, if it copies
    /// For copies, by micro-batch: the instructions they wait for (lastUsers).
    std::map<std::pair<int, int64_t>, std::vector<int>> usersBefore;
  };
  struct Move {
    DeviceAddress from, to;
    int64_t bytes;
    const LaunchableKernel *accumulator; // null: a copy
    int64_t count;                       // of elements
  };

  /// Returns whether the host may execute it if the device does not.
  bool isHostOp(const std::string &op) const;
  Status prepareRegion(program::BlockId id, const program::Region &region);
  Status prepareWrites(program::BlockId id) const;
  Status prepareEvents(program::BlockId id);
  void sayLibraries();
  void sayGain(program::BlockId id);
  void endFirstStep(program::BlockId id);
  void follow(program::BlockId id, int first, int count);
  void recordEnds();
  Status growScratch(program::Stream stream, int64_t bytes);
  DeviceAddress scratchOf(program::Stream stream, int64_t bytes);
  std::vector<DeviceTensor> tensorsOf(const std::vector<program::ValueId> &values) const;
  const LaunchableKernel *accumulator(const runtime::SlotWrite &write) const;
  Move moveOf(const runtime::SlotWrite &write) const;
  void stageOverwritten(std::vector<Move> &moves);
  void beginSpan();
  void endSpan(program::BlockId id, int first, int count);
  void launch(const LaunchableKernel &kernel, void **arguments, const std::string &place);
  void launchOn(const LaunchableKernel &kernel, std::vector<DeviceAddress> addresses,
                const std::string &place);
  bool isHostWrite(const std::vector<runtime::SlotWrite> &writes) const;
  DeviceRange rangeOf(program::ValueId value) const {
    return {arena.at(memory.offsetOf(value)), program::sizeBytes(code.values[value])};
  }
  void beforeUse(const DeviceRange &range, bool isWrite) {
    require(streams->beforeUse(now, range, isWrite));
  }
  bool isWithinStage(const comm::Group &group) const;
  void copyAside(program::BlockId id, int index);
  const std::vector<int> &usersBefore(program::BlockId id, int index, program::ValueId onDevice);

  const program::Program &program;
  int stage;
  const program::Stage &code;
  runtime::RankMemory &memory;
  const CudaOptions options;
  const kernels::Arith arith;
  const Device &device;
  std::shared_ptr<Streams> streams;
  const DeviceArena &arena;     // of `memory`
  const PinnedArena &hostArena; // of `memory` too
  std::unique_ptr<Machine> reference;
  LibraryCalls libraries;
  bool hasSaid = false, hasSaidGain = false, hasEndedFirst = false;
  StepGraphs graphs;
  DeviceTimes times;
  std::vector<kernels::TensorType> keptTypes; // by number
  /// By stream: workspaces of kernels, copies of values overwritten by `write`, and packed
  /// collectives.
  std::array<DeviceMemory, program::numStreams> scratch;
  std::vector<DeviceMemory> outgrown; // former scratch memory, still used by a graph
  std::map<std::pair<program::BlockId, int>, std::unique_ptr<DeviceSparseSum>> sparseSums;
  std::map<program::BlockId, PreparedBlock> prepared;
  // For the current block.
  program::Stream now = program::Stream::Compute; // of the last instruction
  program::BlockId block = program::BlockId(schedule::Action::Kind::Forward);
  int firstDone = 0, numDone = 0; // instructions whose ends are to be recorded
  std::vector<bool> isRecorded;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_RANKONDEVICE_H
