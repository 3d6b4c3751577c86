//===- RankOnDevice.cpp - The backend of a rank on its GPU ------------------===//

#include "runtime/cuda/RankOnDevice.h"
#include "runtime/abi/Region.h"
#include "runtime/cuda/CudaCollectives.h"

#include <algorithm>

namespace tbc::cuda {

using program::BlockId;
using program::InstructionKind;
using program::ValueId;
using runtime::SlotWrite;

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
      if (!region.symbol.empty())
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
  if (kernel->workspaceBytes == 0)
    return Status::ok();
  // All kernels of the stream share the largest workspace, which is there before the first step.
  if (Status status = device.makeCurrent(); !status)
    return status;
  return growScratch(block.instructions[size_t(region.first)].stream, kernel->workspaceBytes);
}

void CudaMachine::sayLibraries() {
  if (hasSaid || !options.say)
    return;
  hasSaid = true;
  for (const std::string &sentence : libraries.sentences())
    options.say(sentence);
}

/// Checks that every accumulated slot has a kernel.
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
  endFirstStep(id);
}

/// Ends the first step. It loads kernels and libraries, with different times on different ranks, so
/// the time-out of steps applies only afterwards.
void CudaMachine::endFirstStep(BlockId id) {
  if (hasEndedFirst || !options.watch || streams->isRecording() ||
      id.kind != schedule::Action::Kind::Update)
    return;
  hasEndedFirst = true;
  require(streams->wait());
  options.watch->endFirstStep();
}

/// Reports the gain of timing, at the end of a step: with the update block.
void CudaMachine::sayGain(BlockId id) {
  if (hasSaidGain || !options.say || id.kind != schedule::Action::Kind::Update)
    return;
  hasSaidGain = true;
  if (std::string gain = libraries.gain(); !gain.empty())
    options.say(gain);
}

/// Records the end events of the current instructions; their results are in their slots.
void CudaMachine::recordEnds() {
  for (; numDone > 0; ++firstDone, --numDone)
    if (auto end = prepared.at(block).ends.find(firstDone); end != prepared.at(block).ends.end()) {
      require(streams->of(now).record(end->second));
      isRecorded[size_t(firstDone)] = true;
    }
}

/// Switches to instructions `first` to `first + count` and their stream, behind all waits.
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

/// Encloses what the device does for instructions, if they are timed.
void CudaMachine::beginSpan() {
  if (times.isOn())
    require(times.begin(now));
}

void CudaMachine::endSpan(BlockId id, int first, int count) {
  if (!times.isOn())
    return;
  const program::Instruction &last = code.block(id).instructions[size_t(first + count - 1)];
  std::string op =
      last.kind == InstructionKind::Kernel ? last.op : std::string(program::name(last.kind));
  require(times.end(now, count > 1 ? "fused, " + op : op));
}

std::vector<runtime::KernelShare> CudaMachine::shares() const {
  require(device.makeCurrent());
  auto found = times.shares();
  require(found ? Status::ok() : Status(found.error()));
  return std::move(*found);
}

void CudaMachine::launch(const LaunchableKernel &kernel, void **arguments,
                         const std::string &place) {
  {
    HostWatch::Call call(options.watch.get(), place);
    require(streams->explain(kernel.launch(device, streams->of(now), arguments)));
  }
  require(streams->note(place));
  if (options.waitForEach)
    require(streams->wait());
}

/// Launches a kernel whose parameters are addresses.
void CudaMachine::launchOn(const LaunchableKernel &kernel, std::vector<DeviceAddress> addresses,
                           const std::string &place) {
  std::vector<void *> arguments;
  for (DeviceAddress &address : addresses)
    arguments.push_back(&address);
  launch(kernel, arguments.data(), place);
}

void CudaMachine::run(BlockId id, int index) {
  require(device.makeCurrent());
  const Prepared &ready = prepared.at(id).instructions[index];
  follow(id, index, ready.count);
  times.forget();
  if (!ready.kernel)
    return reference->run(id, index);
  if (ready.call || ready.isLeftOut) {
    // A value without content is an output.
    auto addressOf = [&](ValueId value) {
      DeviceRange range = rangeOf(value);
      beforeUse(range, !memory.hasValue(value));
      return range.begin;
    };
    if (ready.call) {
      HostWatch::Call call(options.watch.get(), ready.place);
      beginSpan();
      require((*ready.call)(streams->of(now), addressOf));
      endSpan(id, index, ready.count);
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
  if (ready.kernel->workspaceBytes > 0)
    addresses.push_back(scratchOf(now, ready.kernel->workspaceBytes));
  beginSpan();
  launchOn(*ready.kernel, std::move(addresses), ready.place);
  endSpan(id, index, ready.count);
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
  times.forget();
  const program::Instruction &instruction = code.block(id).instructions[size_t(index)];
  if (program::isHostCopy(instruction.kind)) {
    copyAside(id, index);
    return true;
  }
  auto *onDevice = dynamic_cast<DeviceCommunicator *>(&communicator);
  if (onDevice)
    streams->watch(*onDevice);
  std::vector<DeviceTensor> inputs = tensorsOf(instruction.operands);
  if (!canCommunicateOnDevice(onDevice, instruction, inputs, arith)) {
    if (sparseSums.count({id, index}))
      return Error{ErrorCode::Usage, place + ": what is compressed on GPUs travels over NCCL"};
    return false;
  }
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
  auto scratch = [&](int64_t bytes) { return scratchOf(now, bytes); };
  auto sparse = sparseSums.find({id, index});
  beginSpan();
  Status status =
      sparse != sparseSums.end()
          ? sparse->second->run(
                *onDevice, instruction, inputs, tensorsOf(instruction.results), isRegistered,
                streams->of(now), scratch,
                [&](const LaunchableKernel &kernel, std::vector<DeviceAddress> addresses) {
                  launchOn(kernel, std::move(addresses), kernel.symbol);
                },
                place)
          : communicateOnDevice(onDevice, instruction, group, layout, inputs,
                                tensorsOf(instruction.results), isRegistered, streams->of(now),
                                scratch, place);
  if (!status)
    return status.error();
  endSpan(id, index, 1);
  for (ValueId value : instruction.results)
    memory.defineInPlace(value);
  return true;
}

//===----------------------------------------------------------------------===//
// Compressed gradients
//===----------------------------------------------------------------------===//

Result<bool> CudaMachine::compress(BlockId id, int index, const runtime::SparseLayout &layout) {
  if (Status status = device.makeCurrent(); !status)
    return status.error();
  if (!options.kernels)
    return false;
  auto sum = DeviceSparseSum::create(options.device, *options.kernels, layout, *streams);
  if (!sum)
    return sum.error();
  sparseSums[{id, index}] = std::move(*sum);
  return true;
}

std::vector<float> CudaMachine::residuals(BlockId id, int index) const {
  Result<std::vector<float>> elements = sparseSums.at({id, index})->residuals(*streams);
  require(elements ? Status::ok() : Status(elements.error()));
  return std::move(*elements);
}

void CudaMachine::setResiduals(BlockId id, int index, const std::vector<float> &elements) {
  require(sparseSums.at({id, index})->setResiduals(*streams, elements));
}

//===----------------------------------------------------------------------===//
// Copies to the host and back
//===----------------------------------------------------------------------===//

/// Returns whether all of its ranks have the same memory plan.
bool CudaMachine::isWithinStage(const comm::Group &group) const {
  return std::all_of(group.begin(), group.end(), [&](int64_t rank) {
    return program.stageOf(program.mesh.coordinates(rank)) == stage;
  });
}

/// Copies concurrently to the Program's streams: after the last users of its device bytes, and
/// before their next users (beforeUse).
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
    if (!isRecorded[size_t(user)]) { // recorded too late: waits for more than needed
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
  // An operand of a left-out instruction is in use until the library's call that includes it.
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
  numDone = 0; // after a failed walk
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

/// Makes the stream's scratch memory at least this large.
Status CudaMachine::growScratch(program::Stream stream, int64_t bytes) {
  DeviceMemory &memory = scratch[size_t(stream)];
  if (bytes <= memory.bytes())
    return Status::ok();
  // A recorded graph keeps using its old memory. Dropping the graph would need agreement with the
  // other ranks.
  if (streams->hasRecording() && !streams->isRecording())
    outgrown.push_back(std::move(memory));
  else if (Status status = streams->wait(); !status) // for users of the old one
    return status;
  memory = DeviceMemory();
  Result<DeviceMemory> larger = DeviceMemory::allocate(options.device, bytes, "scratch memory");
  if (!larger)
    return larger.error();
  memory = std::move(*larger);
  return Status::ok();
}

/// Returns scratch memory of at least this size. The stream finishes each use before the next.
DeviceAddress CudaMachine::scratchOf(program::Stream stream, int64_t bytes) {
  require(growScratch(stream, bytes));
  return scratch[size_t(stream)].address();
}

/// Copies values to scratch memory if they would be overwritten before they are read.
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

/// Returns whether any of them needs the host; then all are done there.
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

} // namespace tbc::cuda
