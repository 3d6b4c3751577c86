//===- CudaMachine.cpp - Kernels on a GPU ----------------------------------===//

#include "runtime/cuda/CudaMachine.h"
#include "runtime/abi/Region.h"
#include "runtime/cuda/CudaCollectives.h"
#include "runtime/cuda/DeviceArena.h"
#include "runtime/cuda/LibraryCalls.h"
#include "runtime/cuda/NcclCommunicator.h"

#include <algorithm>
#include <array>

namespace tbc::cuda {

using program::BlockId;
using program::InstructionKind;
using program::ValueId;
using runtime::MachineSetting;
using runtime::RankMemory;
using runtime::SlotWrite;

static void require(const Status &status) {
  if (!status)
    throw runtime::MachineError(status.error());
}

namespace {

class CudaMachine : public runtime::Machine {
public:
  CudaMachine(const MachineSetting &setting, const CudaOptions &options,
              std::shared_ptr<Streams> streams, const DeviceArena &arena,
              std::unique_ptr<Machine> reference, std::shared_ptr<MatrixProducts> products,
              std::shared_ptr<CudnnPlans> plans, StepGraphs graphs, const PinnedArena &hostArena)
      : program(setting.program), stage(setting.stage), code(program.stages[stage]),
        memory(setting.memory), options(options), arith(setting.context.arith),
        device(*options.device), streams(std::move(streams)), arena(arena), hostArena(hostArena),
        reference(std::move(reference)),
        libraries(setting.program, setting.stage, std::move(products), std::move(plans)),
        graphs(std::move(graphs)) {}

  ~CudaMachine() override {
    // What is given back now is the device's. If that is lost, all of it is gone anyway.
    static_cast<void>(device.makeCurrent());
    // The communicator may go next, and the memory plan, that of the host included: copies may be
    // under way there even where nobody communicates.
    DeviceCommunicator *communicator = streams->unwatch();
    if (!device.isGivenUp())
      static_cast<void>(streams->wait());
    if (communicator && options.registrar)
      communicator->deregisterAll();
    streams->forgetRecording(); // NCCL waits for graphs to be gone
  }

  Status prepare(BlockId id) override;
  int numAtOnce(BlockId id, int index) const override {
    return prepared.at(id).instructions[index].count;
  }
  void run(BlockId id, int index) override;
  void write(const std::vector<SlotWrite> &writes) override;
  void beginBlock(BlockId id) override;
  void endBlock(BlockId id) override;
  Result<bool> communicate(comm::Communicator &communicator, BlockId id, int index,
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
  runtime::StepWay beginStep(bool mayBeWhole) override { return graphs.begin(mayBeWhole); }
  int keep(ValueId value) override;
  kernels::Tensor kept(int number) override;
  Result<bool> endRecording(comm::Communicator &communicator, const Status &walked) override;
  void replay() override { graphs.replay(); }

private:
  /// An instruction, or a region at its first.
  struct Prepared {
    const LaunchableKernel *kernel = nullptr; // null: executed on the host
    const LibraryCalls::Call *call = nullptr; // in place of the kernel
    bool isLeftOut = false;                   // the call of a later region does it
    int count = 1;
    std::vector<ValueId> operands, results;
    std::string place; // for errors that show later
  };
  struct PreparedBlock {
    std::vector<Prepared> instructions;
    /// Of instructions that others wait for: where they are done.
    std::map<int, Event> ends;
    bool isCommunicating = false; // something is on that stream
    bool isCopying = false;       // to the host or back
    Event begun;                  // where it is copying
    /// Of copies, by micro-batch: what they wait for (lastUsers).
    std::map<std::pair<int, int64_t>, std::vector<int>> usersBefore;
  };
  struct Move {
    DeviceAddress from, to;
    int64_t bytes;
    const LaunchableKernel *accumulator; // null: a copy
    int64_t count;                       // of elements
  };

  /// Whether the host may execute it, where the device does not.
  bool isHostOp(const std::string &op) const;
  Status prepareRegion(BlockId id, const program::Region &region);
  Status prepareWrites(BlockId id) const;
  Status prepareEvents(BlockId id);
  void sayLibraries();
  void sayGain(BlockId id);
  void follow(BlockId id, int first, int count);
  void recordEnds();
  DeviceAddress scratchOf(program::Stream stream, int64_t bytes);
  std::vector<DeviceTensor> tensorsOf(const std::vector<ValueId> &values) const;
  const LaunchableKernel *accumulator(const SlotWrite &write) const;
  Move moveOf(const SlotWrite &write) const;
  void stageOverwritten(std::vector<Move> &moves);
  void launch(const LaunchableKernel &kernel, void **arguments, const std::string &place);
  bool isHostWrite(const std::vector<SlotWrite> &writes) const;
  DeviceRange rangeOf(ValueId value) const {
    return {arena.at(memory.offsetOf(value)), program::sizeBytes(code.values[value])};
  }
  void beforeUse(const DeviceRange &range, bool isWrite) {
    require(streams->beforeUse(now, range, isWrite));
  }
  bool isWithinStage(const comm::Group &group) const;
  void copyAside(BlockId id, int index);
  const std::vector<int> &usersBefore(BlockId id, int index, ValueId onDevice);

  const program::Program &program;
  int stage;
  const program::Stage &code;
  RankMemory &memory;
  const CudaOptions options;
  const kernels::Arith arith;
  const Device &device;
  std::shared_ptr<Streams> streams;
  const DeviceArena &arena;     // of `memory`
  const PinnedArena &hostArena; // of it too
  std::unique_ptr<Machine> reference;
  LibraryCalls libraries;
  bool hasSaid = false, hasSaidGain = false;
  StepGraphs graphs;
  std::vector<kernels::TensorType> keptTypes; // by number
  /// By stream: what `write` has to keep of values that it overwrites, what collectives pack.
  std::array<DeviceMemory, program::numStreams> scratch;
  std::map<BlockId, PreparedBlock> prepared;
  // Of the block under way.
  program::Stream now = program::Stream::Compute; // of the last instruction
  BlockId block = program::BlockId(schedule::Action::Kind::Forward);
  int firstDone = 0, numDone = 0; // instructions whose ends are to be recorded
  std::vector<bool> isRecorded;
};

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Status CudaMachine::prepare(BlockId id) {
  const program::Block &block = code.block(id);
  std::vector<Prepared> &list = prepared[id].instructions;
  list.resize(block.instructions.size());
  if (Status status = prepareEvents(id); !status)
    return status;
  bool usesHost = false;
  if (options.kernels) {
    if (Status status = libraries.prepare(id); !status)
      return status;
    for (const program::Region &region : block.regions)
      if (Status status = prepareRegion(id, region); !status)
        return status;
  }
  for (int i = 0; i < int(block.instructions.size()); i += list[i].count) {
    const program::Instruction &instruction = block.instructions[i];
    if (list[i].kernel || instruction.kind != InstructionKind::Kernel)
      continue;
    if (isHostOp(instruction.op)) {
      usesHost = true;
      continue;
    }
    return Error{ErrorCode::Usage, describe(program, stage, id, i) + ": there is no kernel \"" +
                                       instruction.op + "\" for GPUs"};
  }
  if (Status status = prepareWrites(id); !status)
    return status;
  return usesHost ? reference->prepare(id) : Status::ok();
}

Status CudaMachine::prepareEvents(BlockId id) {
  for (const program::Instruction &instruction : code.block(id).instructions) {
    prepared[id].isCommunicating |= instruction.stream == program::Stream::Communication;
    prepared[id].isCopying |= program::isHostCopy(instruction.kind);
    for (int wait : instruction.waits) {
      if (prepared[id].ends.count(wait))
        continue;
      Result<Event> event = Event::create(options.device);
      if (!event)
        return event.error();
      prepared[id].ends[wait] = std::move(*event);
    }
  }
  if (!prepared[id].isCopying)
    return Status::ok();
  Result<Event> begun = Event::create(options.device);
  if (!begun)
    return begun.error();
  prepared[id].begun = std::move(*begun);
  return Status::ok();
}

bool CudaMachine::isHostOp(const std::string &op) const {
  if (options.allowHost || !options.kernels)
    return options.allowHost;
  const std::vector<std::string> &ops = options.kernels->hostOps();
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

Status CudaMachine::prepareRegion(BlockId id, const program::Region &region) {
  const program::Block &block = code.block(id);
  std::string place = describe(program, stage, id, region.first);
  const LaunchableKernel *kernel = options.kernels->find(region.symbol);
  if (!kernel)
    return Error{ErrorCode::Usage, place + ": " + program::cudaKernelsFile + " has no kernel \"" +
                                       region.symbol + "\"; compile again"};
  for (const program::SharedPlace &shared : sharedPlaces(code, block, region))
    if (!shared.isSame)
      return Error{ErrorCode::Usage, place + ": the memory plan has result %" +
                                         std::to_string(shared.result) + " over value %" +
                                         std::to_string(shared.other) +
                                         " while its kernel runs; compile again"};
  program::RegionValues values = program::regionValues(block, region);
  prepared[id].instructions[region.first] = {kernel,
                                             libraries.find(id, region.first),
                                             libraries.isLeftOut(id, region.first),
                                             region.count,
                                             values.operands,
                                             values.results,
                                             place + ", kernel " + kernel->symbol};
  return Status::ok();
}

void CudaMachine::sayLibraries() {
  if (hasSaid || !options.say)
    return;
  hasSaid = true;
  for (const std::string &sentence : libraries.sentences())
    options.say(sentence);
}

/// What is added to a slot has a kernel too.
Status CudaMachine::prepareWrites(BlockId id) const {
  for (const program::BlockResult &result : code.block(id).results)
    if (result.accumulate && !accumulator({result.value, result.slot, result.accumulate}) &&
        !isHostOp(
            program::sumName(code.slots[result.slot].type.dtype, code.values[result.value].dtype)))
      return Error{ErrorCode::Usage,
                   describe(program, stage, id) + ", result to slot \"" +
                       code.slots[result.slot].name + "\": there is no kernel for GPUs that adds " +
                       std::string(name(code.values[result.value].dtype)) + " to " +
                       std::string(name(code.slots[result.slot].type.dtype))};
  return Status::ok();
}

const LaunchableKernel *CudaMachine::accumulator(const SlotWrite &write) const {
  return options.kernels ? options.kernels->findAccumulator(code.slots[write.slot].type.dtype,
                                                            code.values[write.value].dtype)
                         : nullptr;
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

void CudaMachine::beginBlock(BlockId id) {
  require(device.makeCurrent());
  require(graphs.check());
  sayLibraries();
  block = id;
  isRecorded.assign(code.block(id).instructions.size(), false);
  if (prepared.at(id).isCommunicating)
    require(streams->order(program::Stream::Compute, program::Stream::Communication));
  if (prepared.at(id).isCopying)
    require(streams->of(program::Stream::Compute).record(prepared.at(id).begun));
}

void CudaMachine::endBlock(BlockId id) {
  require(device.makeCurrent());
  recordEnds();
  now = program::Stream::Compute;
  if (prepared.at(id).isCommunicating)
    require(streams->order(program::Stream::Communication, program::Stream::Compute));
  require(streams->noteEnd());
  sayGain(id);
}

/// A step ends with the block that updates.
void CudaMachine::sayGain(BlockId id) {
  if (hasSaidGain || !options.say || id.kind != schedule::Action::Kind::Update)
    return;
  hasSaidGain = true;
  if (std::string gain = libraries.gain(); !gain.empty())
    options.say(gain);
}

/// Those of the instructions under way are done, and their results in their slots.
void CudaMachine::recordEnds() {
  for (; numDone > 0; ++firstDone, --numDone)
    if (auto end = prepared.at(block).ends.find(firstDone); end != prepared.at(block).ends.end()) {
      require(streams->of(now).record(end->second));
      isRecorded[size_t(firstDone)] = true;
    }
}

/// Instructions `first` to `first + count` come next, in their stream, after what they wait for.
void CudaMachine::follow(BlockId id, int first, int count) {
  recordEnds();
  const program::Block &code = this->code.block(id);
  now = code.instructions[size_t(first)].stream;
  firstDone = first, numDone = count;
  for (int i = first; i < first + count; ++i)
    for (int wait : code.instructions[size_t(i)].waits)
      if (isRecorded[size_t(wait)]) // else it was left out
        require(streams->of(now).waitFor(prepared.at(id).ends.at(wait)));
}

void CudaMachine::launch(const LaunchableKernel &kernel, void **arguments,
                         const std::string &place) {
  require(kernel.launch(device, streams->of(now), arguments));
  require(streams->note(place));
  if (options.waitForEach)
    require(streams->wait());
}

void CudaMachine::run(BlockId id, int index) {
  require(device.makeCurrent());
  const Prepared &ready = prepared.at(id).instructions[index];
  follow(id, index, ready.count);
  if (!ready.kernel)
    return reference->run(id, index);
  if (ready.call || ready.isLeftOut) {
    // What has no value yet is what it writes.
    auto addressOf = [&](ValueId value) {
      DeviceRange range = rangeOf(value);
      beforeUse(range, !memory.hasValue(value));
      return range.begin;
    };
    if (ready.call) {
      require((*ready.call)(streams->of(now), addressOf));
      require(streams->note(ready.place));
      if (options.waitForEach)
        require(streams->wait());
    }
    for (ValueId value : ready.results)
      memory.defineInPlace(value);
    return;
  }
  std::vector<DeviceAddress> addresses;
  for (const std::vector<ValueId> *list : {&ready.operands, &ready.results})
    for (ValueId value : *list) {
      beforeUse(rangeOf(value), /*isWrite=*/list == &ready.results);
      addresses.push_back(arena.at(memory.offsetOf(value)));
    }
  std::vector<void *> arguments;
  for (DeviceAddress &address : addresses)
    arguments.push_back(&address);
  launch(*ready.kernel, arguments.data(), ready.place);
  for (ValueId value : ready.results)
    memory.defineInPlace(value);
}

std::vector<DeviceTensor> CudaMachine::tensorsOf(const std::vector<ValueId> &values) const {
  std::vector<DeviceTensor> list;
  for (ValueId value : values)
    list.push_back({arena.at(memory.offsetOf(value)), code.values[value]});
  return list;
}

Result<bool> CudaMachine::communicate(comm::Communicator &communicator, BlockId id, int index,
                                      const runtime::GroupPlace &group,
                                      const runtime::MemoryLayout &layout,
                                      const std::string &place) {
  require(device.makeCurrent());
  follow(id, index, 1);
  const program::Instruction &instruction = code.block(id).instructions[size_t(index)];
  if (program::isHostCopy(instruction.kind)) {
    copyAside(id, index);
    return true;
  }
  auto *onDevice = dynamic_cast<DeviceCommunicator *>(&communicator);
  if (onDevice)
    streams->watch(*onDevice);
  std::vector<DeviceTensor> inputs = tensorsOf(instruction.operands);
  if (!canCommunicateOnDevice(onDevice, instruction, inputs, arith))
    return false;
  for (ValueId value : instruction.operands)
    beforeUse(rangeOf(value), /*isWrite=*/false);
  for (ValueId value : instruction.results)
    beforeUse(rangeOf(value), /*isWrite=*/true);
  bool isRegistered = onDevice && options.registrar && isWithinStage(group.ranks) &&
                      instruction.kind != InstructionKind::ShardSlice;
  if (isRegistered && !streams->isRecording())
    if (Status status = onDevice->registerMemory(group.ranks, arena.at(0), arena.bytes(), place);
        !status)
      return status.error();
  Status status = communicateOnDevice(
      onDevice, instruction, group, layout, inputs, tensorsOf(instruction.results), isRegistered,
      streams->of(now), [&](int64_t bytes) { return scratchOf(now, bytes); }, place);
  if (!status)
    return status.error();
  for (ValueId value : instruction.results)
    memory.defineInPlace(value);
  return true;
}

//===----------------------------------------------------------------------===//
// Copies to the host and back
//===----------------------------------------------------------------------===//

/// Whether all of them have the same memory plan.
bool CudaMachine::isWithinStage(const comm::Group &group) const {
  return std::all_of(group.begin(), group.end(), [&](int64_t rank) {
    return program.stageOf(program.mesh.coordinates(rank)) == stage;
  });
}

/// Beside what the Program's streams do: after those who used its bytes of the device last, and
/// before those who use them next (beforeUse).
void CudaMachine::copyAside(BlockId id, int index) {
  const program::Instruction &instruction = code.block(id).instructions[size_t(index)];
  bool isFetch = instruction.kind == InstructionKind::Fetch;
  ValueId onDevice = isFetch ? instruction.results[0] : instruction.operands[0];
  ValueId onHost = isFetch ? instruction.operands[0] : instruction.results[0];
  const std::vector<int> &users = usersBefore(id, index, onDevice);
  HostCopies &copies = streams->hostCopies();
  PreparedBlock &ready = prepared.at(id);
  require(copies.stream().waitFor(ready.begun));
  for (int user : users) {
    Event &end = ready.ends[user];
    if (!end.handle()) {
      Result<Event> made = Event::create(options.device);
      require(made ? Status::ok() : Status(made.error()));
      end = std::move(*made);
    }
    if (!isRecorded[size_t(user)]) { // nobody knew that it would be needed: later than need be
      require(streams->of(code.block(id).instructions[size_t(user)].stream).record(end));
      isRecorded[size_t(user)] = true;
    }
    require(copies.stream().waitFor(end));
  }
  unsigned char *host = hostArena.at(memory.offsetOf(onHost));
  require(isFetch ? copies.toDevice(rangeOf(onDevice), host)
                  : copies.toHost(host, rangeOf(onDevice)));
  memory.defineInPlace(instruction.results[0]);
}

const std::vector<int> &CudaMachine::usersBefore(BlockId id, int index, ValueId onDevice) {
  auto [found, isNew] =
      prepared.at(id).usersBefore.try_emplace({index, memory.microBatchOfBlock()});
  if (!isNew)
    return found->second;
  const program::Block &block = code.block(id);
  bool isFetch = block.instructions[size_t(index)].kind == InstructionKind::Fetch;
  found->second = lastUsers(
      code, block, index, rangeOf(onDevice), isFetch,
      [&](ValueId value) { return arena.at(memory.offsetOf(value)); },
      [&](int slot) { return arena.at(memory.offsetOfSlot(slot)); });
  // What a library's call does later has used its operands then.
  for (int &user : found->second)
    for (int i = index - 1; libraries.isLeftOut(id, user) && i > user; --i)
      if (!libraries.isLeftOut(id, i) &&
          block.instructions[size_t(i)].stream == block.instructions[size_t(user)].stream)
        user = i;
  return found->second;
}

//===----------------------------------------------------------------------===//
// Steps as graphs
//===----------------------------------------------------------------------===//

int CudaMachine::keep(ValueId value) {
  beforeUse(rangeOf(value), /*isWrite=*/false);
  Result<int> number =
      streams->keep(now, arena.at(memory.offsetOf(value)), program::sizeBytes(code.values[value]));
  require(number ? Status::ok() : Status(number.error()));
  keptTypes.resize(size_t(*number) + 1);
  keptTypes[size_t(*number)] = code.values[value];
  return *number;
}

kernels::Tensor CudaMachine::kept(int number) {
  Result<const unsigned char *> bytes = streams->kept(number);
  require(bytes ? Status::ok() : Status(bytes.error()));
  return kernels::Tensor::fromBytes(keptTypes.at(size_t(number)), kernels::Arith::Native, *bytes);
}

Result<bool> CudaMachine::endRecording(comm::Communicator &communicator, const Status &walked) {
  numDone = 0; // of a walk that failed
  now = program::Stream::Compute;
  return graphs.endRecording(communicator, walked);
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

static bool overlap(DeviceAddress a, int64_t aBytes, DeviceAddress b, int64_t bBytes) {
  return a < b + DeviceAddress(bBytes) && b < a + DeviceAddress(aBytes);
}

CudaMachine::Move CudaMachine::moveOf(const SlotWrite &write) const {
  const kernels::TensorType &type = code.values[write.value];
  return {arena.at(memory.offsetOf(write.value)), arena.at(memory.offsetOfSlot(write.slot)),
          program::sizeBytes(type), write.accumulate ? accumulator(write) : nullptr,
          kernels::numElements(type.shape)};
}

/// Of at least so many bytes. What the stream does with it is done before its next use.
DeviceAddress CudaMachine::scratchOf(program::Stream stream, int64_t bytes) {
  DeviceMemory &memory = scratch[size_t(stream)];
  if (bytes > memory.bytes()) {
    require(streams->wait()); // for what uses the old one
    graphs.forget();
    memory = DeviceMemory();
    Result<DeviceMemory> larger = DeviceMemory::allocate(options.device, bytes, "scratch memory");
    if (!larger)
      throw runtime::MachineError(larger.error());
    memory = std::move(*larger);
  }
  return memory.address();
}

/// Copies to scratch memory what is read after something was written over it.
void CudaMachine::stageOverwritten(std::vector<Move> &moves) {
  std::vector<size_t> overwritten;
  int64_t bytes = 0;
  for (size_t i = 0; i < moves.size(); ++i) {
    bool isOver = false;
    for (size_t j = 0; j <= i; ++j) {
      bool isItself = i == j && moves[i].from == moves[i].to; // element by element
      isOver |= !isItself && overlap(moves[i].from, moves[i].bytes, moves[j].to, moves[j].bytes);
    }
    if (!isOver)
      continue;
    overwritten.push_back(i);
    bytes += moves[i].bytes;
  }
  DeviceAddress at = scratchOf(now, bytes);
  for (size_t i : overwritten) {
    require(streams->of(now).copyWithin(at, moves[i].from, moves[i].bytes));
    moves[i].from = at;
    at += DeviceAddress(moves[i].bytes);
  }
}

/// Whether one of them can only be done on the host; then all are.
bool CudaMachine::isHostWrite(const std::vector<SlotWrite> &writes) const {
  return std::any_of(writes.begin(), writes.end(), [&](const SlotWrite &write) {
    return write.accumulate && !accumulator(write);
  });
}

void CudaMachine::write(const std::vector<SlotWrite> &writes) {
  if (writes.empty())
    return;
  require(device.makeCurrent());
  if (isHostWrite(writes))
    return reference->write(writes);
  std::vector<Move> moves;
  for (const SlotWrite &write : writes)
    moves.push_back(moveOf(write));
  for (const Move &move : moves) {
    beforeUse({move.from, move.bytes}, /*isWrite=*/false);
    beforeUse({move.to, move.bytes}, /*isWrite=*/true);
  }
  stageOverwritten(moves);
  for (Move &move : moves) {
    if (move.bytes == 0 || (move.from == move.to && !move.accumulator))
      continue;
    if (!move.accumulator) {
      require(streams->of(now).copyWithin(move.to, move.from, move.bytes));
      continue;
    }
    void *arguments[] = {&move.to, &move.from, &move.count};
    launch(*move.accumulator, arguments, move.accumulator->symbol);
  }
  for (const SlotWrite &write : writes)
    memory.settle(write.slot);
}

} // namespace

/// The same without anything that computes on the device.
static CudaOptions onHost(CudaOptions options) {
  options.kernels = nullptr;
  options.allowHost = true;
  options.cublas.reset();
  options.cudnn.reset();
  return options;
}

runtime::MachineMaker cudaMachine(const CudaOptions &options) {
  return [given =
              options](const MachineSetting &setting) -> Result<std::unique_ptr<runtime::Machine>> {
    const kernels::Arith arith = setting.context.arith;
    const CudaOptions options = arith == kernels::Arith::Residue251 ? onHost(given) : given;
    const program::Stage &code = setting.program.stages[setting.stage];
    if (!setting.memory.hasArena())
      return Error{ErrorCode::Usage,
                   "the Program has no memory plan, which GPUs need; compile it again"};
    if (arith != kernels::Arith::Native && arith != kernels::Arith::Residue251)
      return Error{ErrorCode::Usage,
                   "GPUs hold numbers in the precision of their types, or modulo 251"};
    if (options.isBenchmark && options.isDeterministic)
      return Error{ErrorCode::Usage, "what is chosen by its time may differ from run to run"};
    if (Status status = options.device->makeCurrent(); !status)
      return status.error();
    auto streams = Streams::create(options.device, options.timeout);
    if (!streams)
      return streams.error();
    std::string what = "the memory plan of stage " + std::to_string(setting.stage);
    int64_t bytes = code.memory.arenaBytes;
    auto memory = options.registrar && options.registrar->memAlloc
                      ? allocateRegistrable(*options.registrar, options.device, bytes, what)
                      : DeviceMemory::allocate(options.device, bytes, what);
    if (!memory)
      return memory.error();
    auto arena = DeviceArena::create(std::move(*memory), *streams, arith);
    std::shared_ptr<MatrixProducts> products;
    if (options.cublas) {
      auto made = MatrixProducts::create(options.device, *options.cublas, options.isDeterministic,
                                         options.isBenchmark ? *streams : nullptr);
      if (!made)
        return made.error();
      products = std::move(*made);
    }
    std::shared_ptr<CudnnPlans> plans;
    if (options.cudnn && !options.isDeterministic) {
      auto made = CudnnPlans::create(options.device, *options.cudnn);
      if (!made)
        return made.error();
      plans = std::move(*made);
    }
    auto isHostKernel = [&](const program::Block &block, int instruction) {
      return !options.kernels ||
             std::none_of(block.regions.begin(), block.regions.end(), [&](const auto &region) {
               return region.first <= instruction && instruction < region.first + region.count;
             });
    };
    std::string refusal = options.waitForEach ? "the run waits for each kernel"
                                              : whyNotRecorded(setting.program, isHostKernel);
    if (options.graphs == GraphUse::On && !refusal.empty())
      return Error{ErrorCode::Usage, "--cuda-graphs on: a step cannot be one: " + refusal};
    StepGraphs graphs(options.graphs, *streams, refusal,
                      stepInputBytes(setting.program, setting.stage), options.say);
    auto hostArena =
        PinnedArena::create(options.device, *streams, code.memory.hostArenaBytes, arith);
    if (!hostArena)
      return hostArena.error();
    const DeviceArena &place = *arena;
    const PinnedArena &hostPlace = **hostArena;
    setting.memory.useArena(std::move(arena));
    setting.memory.useHostArena(std::move(*hostArena));
    auto reference = runtime::makeReferenceMachine(setting);
    if (!reference)
      return reference.error();
    return std::unique_ptr<runtime::Machine>(std::make_unique<CudaMachine>(
        setting, options, *streams, place, std::move(*reference), std::move(products),
        std::move(plans), std::move(graphs), hostPlace));
  };
}

} // namespace tbc::cuda
