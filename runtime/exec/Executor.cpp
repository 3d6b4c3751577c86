//===- Executor.cpp - One rank of a Program --------------------------------===//

#include "runtime/exec/Executor.h"
#include "runtime/abi/Order.h"
#include "runtime/exec/Failed.h"
#include "runtime/exec/LossSlice.h"
#include "runtime/kernels/Finite.h"

#include <algorithm>

namespace tbc::runtime {

using kernels::Tensor;
using program::Block;
using program::BlockId;
using program::Instruction;
using program::InstructionKind;
using program::Role;
using program::Slot;
using schedule::Action;

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Executor::Executor(const program::Program &program, int64_t rank, kernels::Arith arith)
    : program(&program), self(rank), coordinates(program.mesh.coordinates(rank)),
      stageIndex(program.stageOf(coordinates)), arith(arith),
      contents(std::make_unique<RankMemory>(program.stages[stageIndex], arith)) {
  stageCode = &program.stages[stageIndex];
  for (const Slot &slot : stageCode->slots) {
    int64_t bytes = program::sizeBytes(slot.type);
    use.parameterBytes += slot.role == Role::Parameter ? bytes : 0;
    use.stateBytes += slot.role == Role::State ? bytes : 0;
    (slot.location == program::Location::Host ? use.hostOptimizerStateBytes
                                              : use.optimizerStateBytes) +=
        slot.role == Role::OptimizerState ? bytes : 0;
    use.gradientBytes += slot.role == Role::Gradient ? bytes : 0;
  }
}

Result<Executor> Executor::create(const program::Program &program, int64_t rank,
                                  const kernels::KernelContext &context,
                                  const MachineMaker &makeMachine) {
  Executor executor(program, rank, context.arith);
  auto machine = makeMachine({program, executor.stageIndex, *executor.contents, context});
  if (!machine)
    return machine.error();
  executor.machine = std::move(*machine);
  for (BlockId block : executor.stageCode->blocks()) {
    if (Status status = executor.prepare(block); !status)
      return status.error();
  }
  return executor;
}

Status Executor::prepare(BlockId id) {
  const Block &block = stageCode->block(id);
  std::vector<Prepared> &list = prepared[id].instructions;
  std::set<int> &read = readSlots[id];
  for (const program::Argument &argument : block.arguments)
    if (livesAMicroBatch(stageCode->slots[argument.slot].role))
      read.insert(argument.slot);
  numReaders.resize(stageCode->slots.size(), 0);
  if (id.kind != Kind::LastBackward) // in place of the backward, which reads the same
    for (int slot : read)
      ++numReaders[slot];
  startsAtZero.resize(stageCode->slots.size(), false);
  auto start = [&](int slot) {
    Role role = stageCode->slots[slot].role;
    if (id.kind != Kind::Update && (role == Role::Gradient || role == Role::Loss))
      startsAtZero[slot] = true;
  };
  for (const program::Argument &argument : block.arguments)
    start(argument.slot);
  for (const program::BlockResult &result : block.results)
    if (result.accumulate)
      start(result.slot);
  list.resize(block.instructions.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Instruction &instruction = block.instructions[i];
    if (isCommunication(instruction.kind))
      list[i].group = groupPlace(*program, instruction, coordinates);
    if (instruction.kind != InstructionKind::Kernel)
      list[i].layout = memoryLayout(instruction, list[i].group, typesOf(instruction.operands),
                                    typesOf(instruction.results));
  }
  prepareTimes(id);
  return machine->prepare(id);
}

std::vector<kernels::TensorType>
Executor::typesOf(const std::vector<program::ValueId> &values) const {
  std::vector<kernels::TensorType> types;
  for (program::ValueId value : values)
    types.push_back(stageCode->values[value]);
  return types;
}

/// Sorts results by the time at which they take effect, and values by their last use.
void Executor::prepareTimes(BlockId id) {
  const Block &block = stageCode->block(id);
  PreparedBlock &ready = prepared[id];
  int end = int(block.instructions.size());
  memory::StreamOrder order(program::streamStepsOf(block));
  std::vector<int> lastUse(stageCode->values.size(), -1);
  std::vector<bool> isCommunicated(stageCode->values.size(), false);
  for (int i = 0; i < end; ++i) {
    const Instruction &instruction = block.instructions[i];
    bool isAside = instruction.stream != program::Stream::Compute;
    ready.streams[int(instruction.stream)].push_back(i);
    ready.isOverlapped |= isAside && order.settled(i) > i + 1;
    for (const std::vector<program::ValueId> *list : {&instruction.operands, &instruction.results})
      for (program::ValueId value : *list) {
        lastUse[value] = i;
        isCommunicated[value] = isCommunicated[value] || isAside;
      }
  }
  std::vector<int> times = resultTimes(*stageCode, block);
  for (int r = 0; r < int(times.size()); ++r) {
    int &last = lastUse[block.results[r].value];
    last = std::max(last, times[r]);
    (times[r] < 0      ? ready.resultsBefore
     : times[r] == end ? ready.resultsAfter
                       : ready.instructions[times[r]].results)
        .push_back(r);
  }
  // Values used by both streams stay until the block ends.
  for (size_t value = 0; value < lastUse.size(); ++value)
    if (lastUse[value] >= 0 && lastUse[value] < end &&
        !(ready.isOverlapped && isCommunicated[value]))
      ready.instructions[lastUse[value]].lastUses.push_back(program::ValueId(value));
  ready.peakBytes = valuePeakBytes(block, lastUse);
}

/// Returns the peak bytes of the block's values, in the order of its instructions.
int64_t Executor::valuePeakBytes(const Block &block, const std::vector<int> &lastUse) const {
  int end = int(block.instructions.size());
  std::vector<int64_t> freed(size_t(end) + 1, 0);
  int64_t live = 0, peak = 0;
  for (int i = 0; i < end; ++i) {
    for (program::ValueId value : block.instructions[i].results) {
      if (block.instructions[i].kind == InstructionKind::Offload)
        continue; // on the host
      int64_t bytes = program::sizeBytes(stageCode->values[value]);
      live += bytes;
      freed[size_t(lastUse[value])] += bytes;
    }
    peak = std::max(peak, live);
    live -= freed[size_t(i)];
  }
  return peak;
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

std::string Executor::place(const Action &action, int index) const {
  std::string text = describe(*program, stageIndex, action, index);
  if (action.kind != Kind::Update)
    text += ", micro-batch " + std::to_string(action.microBatch);
  return text;
}

Status Executor::checkInputs(const StepInputs &inputs) const {
  if (inputs.pieces || int64_t(inputs.microBatches.size()) == program->microBatches)
    return Status::ok();
  return Error{ErrorCode::Usage, "the program takes " + std::to_string(program->microBatches) +
                                     " micro-batches a step, " +
                                     std::to_string(inputs.microBatches.size()) + " are provided"};
}

Status Executor::beginStep(const StepInputs &inputs) {
  if (Status status = checkInputs(inputs); !status)
    return status;
  try {
    for (int i = 0; i < int(stageCode->slots.size()); ++i) {
      const Slot &slot = stageCode->slots[i];
      if (startsAtZero[i])
        contents->setZero(i);
      else if (slot.role == Role::Scalar)
        contents->setSlot(i, 0, Tensor::fromDoubles(slot.type, arith, {inputs.learningRate}));
      else if (livesAMicroBatch(slot.role) || slot.role == Role::Gradient ||
               slot.role == Role::Loss)
        contents->clear(i);
    }
  } catch (const kernels::KernelError &error) {
    return failed("the begin of a step", error);
  }
  numReads.clear();
  residualBytes = hostResidualBytes = 0;
  return Status::ok();
}

Status Executor::walkStep(comm::Communicator &communicator, const StepInputs &inputs,
                          const UpdateGate *gate) {
  if (Status status = beginStep(inputs); !status)
    return status;
  // Saved for a refused update, because forward blocks write running statistics.
  std::map<int, Tensor> states = gate ? slotsOf(Role::State) : std::map<int, Tensor>();
  for (const Action &action : program::actionsOf(*program, stageIndex)) {
    if (gate && action.kind == Kind::Update) {
      Result<bool> isApplied = askGate(communicator, *gate);
      if (!isApplied)
        return isApplied.error();
      if (!*isApplied) {
        putBack(states);
        continue;
      }
    }
    if (Status status = loadInputs(inputs, action); !status)
      return status;
    if (Status status = runBlock(communicator, action); !status)
      return status;
    dropRead(action);
  }
  return Status::ok();
}

std::map<int, Tensor> Executor::slotsOf(Role role) const {
  std::map<int, Tensor> held;
  for (int i = 0; i < int(stageCode->slots.size()); ++i)
    if (stageCode->slots[i].role == role && contents->holds(i))
      held[i] = contents->slot(i);
  return held;
}

void Executor::putBack(const std::map<int, Tensor> &slots) {
  for (const auto &[slot, value] : slots)
    contents->setSlot(slot, 0, value);
}

bool Executor::areGradientsFinite() const {
  std::map<int, Tensor> gradients = slotsOf(Role::Gradient);
  return std::all_of(gradients.begin(), gradients.end(),
                     [](const auto &entry) { return kernels::isFinite(entry.second); });
}

/// Completes the loss as an evaluation does, and asks the gate. The overwritten slots are restored
/// in any case, the loss only if the update is applied.
Result<bool> Executor::askGate(comm::Communicator &communicator, const UpdateGate &gate) {
  std::vector<bool> slice = lossSlice(*program, stageIndex);
  std::map<int, Tensor> before = overwritten(slice), losses = slotsOf(Role::Loss);
  Action update{};
  update.kind = Kind::Update;
  if (Status status = runBlock(communicator, update, &slice); !status)
    return status.error();
  Result<bool> isApplied = gate(loss());
  putBack(before);
  if (isApplied && *isApplied)
    putBack(losses);
  return isApplied;
}

Status Executor::runForward(comm::Communicator &communicator, const StepInputs &inputs) {
  for (const program::Stage &stage : program->stages)
    for (const Slot &slot : stage.slots)
      if (slot.role == Role::State)
        return Error{ErrorCode::Usage, "forward blocks write \"" + slot.name +
                                           "\": running statistics are of training, and a model "
                                           "that has them cannot be evaluated by its step"};
  std::vector<bool> slice = lossSlice(*program, stageIndex);
  if (Status status = beginStep(inputs); !status)
    return status;
  // The update reads gradients beside the loss, and no backward block writes them.
  for (int i = 0; i < int(stageCode->slots.size()); ++i)
    if (stageCode->slots[i].role == Role::Gradient)
      contents->setZero(i);
  std::map<int64_t, size_t> numLeft; // remaining forward blocks per micro-batch
  for (int64_t m = 0; m < program->microBatches; ++m)
    numLeft[m] = stageCode->chunks.size();
  for (const Action &action : program::actionsOf(*program, stageIndex)) {
    if (action.kind != Kind::Forward)
      continue;
    if (Status status = loadInputs(inputs, action); !status)
      return status;
    if (Status status = runBlock(communicator, action); !status)
      return status;
    if (--numLeft[action.microBatch] > 0)
      continue;
    for (int i = 0; i < int(stageCode->slots.size()); ++i)
      if (livesAMicroBatch(stageCode->slots[i].role))
        drop(i, action.microBatch);
  }
  Action update{};
  update.kind = Kind::Update;
  std::map<int, Tensor> before = overwritten(slice);
  if (Status status = runBlock(communicator, update, &slice); !status)
    return status;
  putBack(before);
  return Status::ok();
}

/// Saves the slots, except the loss, that the update's instructions in `part` overwrite by
/// computing results in place.
std::map<int, Tensor> Executor::overwritten(const std::vector<bool> &part) const {
  std::map<int, Tensor> held;
  if (stageCode->memory.isEmpty())
    return held;
  const Block &block = stageCode->update;
  for (const program::BlockResult &result : block.results) {
    if (stageCode->slots[result.slot].role == Role::Loss ||
        stageCode->memory.values[result.value].slot != result.slot)
      continue;
    for (size_t i = 0; i < part.size(); ++i) {
      const std::vector<program::ValueId> &results = block.instructions[i].results;
      if (part[i] && std::find(results.begin(), results.end(), result.value) != results.end())
        held[result.slot] = contents->slot(result.slot);
    }
  }
  return held;
}

Status Executor::runBlock(comm::Communicator &communicator, const Action &action,
                          const std::vector<bool> *part) {
  const Block &block = stageCode->block(action);
  const PreparedBlock &ready = prepared.at(action);
  contents->beginBlock(action.microBatch);
  for (const program::Argument &argument : block.arguments) {
    if (!contents->holds(argument.slot, action.microBatch))
      return failed(describe(*program, stageIndex, action),
                    "slot \"" + stageCode->slots[argument.slot].name +
                        "\" is read before it is written");
    contents->bind(argument.value, argument.slot);
  }
  if (Status status = writePart(action, ready.resultsBefore, part); !status)
    return status;

  bool isAside = ready.isOverlapped && !part && machine->allowsCommunicationThread();
  Status status =
      isAside ? runSideBySide(communicator, action) : runInOrder(communicator, action, part);
  use.valuePeakBytes = std::max(use.valuePeakBytes, ready.peakBytes);
  return status ? writePart(action, ready.resultsAfter, part) : status;
}

Status Executor::runInOrder(comm::Communicator &communicator, const Action &action,
                            const std::vector<bool> *part) {
  int end = int(stageCode->block(action).instructions.size());
  if (Status status = tellMachine(action, &Machine::beginBlock); !status)
    return status;
  for (int i = 0; i < end;) {
    Result<int> next = i + 1;
    if (!part || (*part)[i]) {
      auto begin = std::chrono::steady_clock::now();
      next = runInstructions(communicator, action, i);
      if (!next)
        return next.error();
      if (Status status = tell(action, i, *next, begin); !status)
        return status;
    }
    for (; i < *next; ++i)
      if (Status status = settle(action, i, part); !status)
        return status;
  }
  return tellMachine(action, &Machine::endBlock);
}

/// Tells the machine that a block begins or ends.
Status Executor::tellMachine(const Action &action, void (Machine::*function)(BlockId)) {
  try {
    (machine.get()->*function)(action);
    return Status::ok();
  } catch (const kernels::KernelError &error) {
    return failed(describe(*program, stageIndex, action), error);
  }
}

/// Calls the observers for instructions `first` to `end`.
Status Executor::tell(const Action &action, int first, int end,
                      std::chrono::steady_clock::time_point begin) {
  if (observers.empty())
    return Status::ok();
  for (Observer *observer : observers)
    if (isRecording)
      if (Status status = keepFor(*observer, action, first, end); !status)
        return status;
  if (isRecording)
    return Status::ok();
  Executed executed{*stageCode,
                    action,
                    first,
                    end,
                    begin,
                    std::chrono::steady_clock::now(),
                    [this](program::ValueId value) { return contents->value(value); },
                    machine->lastSpan()};
  for (Observer *observer : observers)
    if (Status status = observer->executed(executed); !status)
      return Error{status.error().code, place(action, first) + ": " + status.error().message};
  return Status::ok();
}

/// Does the work due after instruction `index`: writes its results and drops dead values.
Status Executor::settle(const Action &action, int index, const std::vector<bool> *part) {
  const Prepared &done = prepared.at(action).instructions[index];
  if (Status status = writePart(action, done.results, part); !status)
    return status;
  for (program::ValueId value : done.lastUses)
    contents->forget(value);
  return Status::ok();
}

/// Writes results. If only a part of the block is executed, it writes only those to slots of role
/// Loss.
Status Executor::writePart(const Action &action, std::vector<int> results,
                           const std::vector<bool> *part) {
  const Block &block = stageCode->block(action);
  auto isLeftOut = [&](int number) {
    return stageCode->slots[block.results[number].slot].role != Role::Loss;
  };
  if (part)
    results.erase(std::remove_if(results.begin(), results.end(), isLeftOut), results.end());
  return writeResults(action, results);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

/// Writes the results with these numbers, after all of them are read.
Status Executor::writeResults(const Action &action, const std::vector<int> &results) {
  const Block &block = stageCode->block(action);
  std::vector<SlotWrite> writes;
  std::vector<int> settled;
  std::string names;
  for (int number : results) {
    const program::BlockResult &result = block.results[number];
    const Slot &slot = stageCode->slots[result.slot];
    bool isHeld = contents->holds(result.slot, action.microBatch) ||
                  std::any_of(writes.begin(), writes.end(),
                              [&](const SlotWrite &write) { return write.slot == result.slot; });
    auto failedHere = [&](const std::string &why) {
      return failed(
          describe(*program, stageIndex, action) + ", result to slot \"" + slot.name + "\"", why);
    };
    // The memory plan may have computed it in its slot.
    bool isThere = contents->isIn(result.value, result.slot);
    if (!isThere && !contents->hasValue(result.value))
      return failedHere("value %" + std::to_string(result.value) + " has no value");
    if (result.accumulate && !isHeld)
      return failedHere("it is added to before it is written");
    if (!result.accumulate && slot.role == Role::Residual) {
      if (numReaders[result.slot] == 0)
        continue; // it has no reader
      residualBytesOf(slot) += isHeld ? 0 : program::sizeBytes(slot.type);
    }
    if (isThere && !result.accumulate)
      settled.push_back(result.slot);
    else
      writes.push_back({result.value, result.slot, result.accumulate});
    names += (names.empty() ? "\"" : ", \"") + slot.name + "\"";
  }
  try {
    machine->write(writes);
  } catch (const kernels::KernelError &error) {
    return failed(describe(*program, stageIndex, action) + ", result to slot " + names, error);
  }
  for (int slot : settled)
    contents->settle(slot);
  use.residualPeakBytes = std::max(use.residualPeakBytes, residualBytes);
  use.hostResidualPeakBytes = std::max(use.hostResidualPeakBytes, hostResidualBytes);
  return Status::ok();
}

/// Drops slots after their last read.
void Executor::dropRead(const Action &action) {
  for (int i : readSlots.at(action)) {
    if (++numReads[{i, action.microBatch}] == numReaders[i])
      drop(i, action.microBatch);
  }
}

void Executor::drop(int index, int64_t microBatch) {
  const Slot &slot = stageCode->slots[index];
  if (contents->drop(index, microBatch) && slot.role == Role::Residual)
    residualBytesOf(slot) -= program::sizeBytes(slot.type);
}

//===----------------------------------------------------------------------===//
// Contents
//===----------------------------------------------------------------------===//

Tensor Executor::held(int tensor) const {
  for (int i = 0; i < int(stageCode->slots.size()); ++i) {
    if (stageCode->slots[i].tensor == tensor && contents->holds(i))
      return contents->slot(i);
  }
  return Tensor();
}

Status Executor::set(int tensor, const Tensor &value) {
  for (int i = 0; i < int(stageCode->slots.size()); ++i) {
    const Slot &slot = stageCode->slots[i];
    if (slot.tensor != tensor)
      continue;
    if (value.type() != slot.type)
      return failed("slot \"" + slot.name + "\"", "it is set to a " + toString(value.type()) +
                                                      ", its type is " + toString(slot.type));
    try {
      contents->setSlot(i, 0, value);
    } catch (const kernels::KernelError &error) {
      return failed("slot \"" + slot.name + "\"", error);
    }
  }
  return Status::ok();
}

Tensor Executor::loss() const {
  for (int i = 0; i < int(stageCode->slots.size()); ++i) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role == Role::Loss && slot.name == "loss" && contents->holds(i))
      return contents->slot(i);
  }
  return Tensor();
}

} // namespace tbc::runtime
