//===- Executor.cpp - One rank of a Program --------------------------------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/Packing.h"

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

static Error failed(const std::string &place, const std::string &why) {
  return Error{ErrorCode::RankFailed, place + ": " + why};
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Executor::Executor(const program::Program &program, int64_t rank,
                   const kernels::KernelContext &context)
    : program(&program), self(rank), coordinates(program.mesh.coordinates(rank)),
      stageIndex(program.stageOf(coordinates)), context(context), arith(context.arith),
      contents(program.stages[stageIndex], context.arith) {
  stageCode = &program.stages[stageIndex];
  for (const Slot &slot : stageCode->slots) {
    int64_t bytes = program::sizeBytes(slot.type);
    use.parameterBytes += slot.role == Role::Parameter ? bytes : 0;
    use.stateBytes += slot.role == Role::State ? bytes : 0;
    use.optimizerStateBytes += slot.role == Role::OptimizerState ? bytes : 0;
    use.gradientBytes += slot.role == Role::Gradient ? bytes : 0;
  }
}

Result<Executor> Executor::create(const program::Program &program, int64_t rank,
                                  const kernels::KernelContext &context) {
  Executor executor(program, rank, context);
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
  for (int slot : read)
    ++numReaders[slot];
  list.resize(block.instructions.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Instruction &instruction = block.instructions[i];
    for (program::ValueId value : instruction.results)
      list[i].resultTypes.push_back(stageCode->values[value]);
    if (instruction.kind != InstructionKind::Kernel) {
      list[i].group = groupPlace(*program, instruction, coordinates);
      continue;
    }
    list[i].kernel = kernels::findKernel(instruction.op);
    if (!list[i].kernel)
      return Error{ErrorCode::Usage, describe(*program, stageIndex, id, int(i)) +
                                         ": there is no kernel \"" + instruction.op + "\""};
  }
  prepareTimes(id);
  return Status::ok();
}

/// Sorts results by when they take effect, and values by when they are no longer needed.
void Executor::prepareTimes(BlockId id) {
  const Block &block = stageCode->block(id);
  PreparedBlock &ready = prepared[id];
  int end = int(block.instructions.size());
  ready.isArgument.assign(stageCode->values.size(), false);
  std::vector<int> lastUse(stageCode->values.size(), -1);
  for (const program::Argument &argument : block.arguments)
    ready.isArgument[argument.value] = true;
  for (int i = 0; i < end; ++i)
    for (const std::vector<program::ValueId> *list :
         {&block.instructions[i].operands, &block.instructions[i].results})
      for (program::ValueId value : *list)
        lastUse[value] = i;
  std::vector<int> times = resultTimes(*stageCode, block);
  for (int r = 0; r < int(times.size()); ++r) {
    int &last = lastUse[block.results[r].value];
    last = std::max(last, times[r]);
    (times[r] < 0      ? ready.resultsBefore
     : times[r] == end ? ready.resultsAfter
                       : ready.instructions[times[r]].results)
        .push_back(r);
  }
  for (size_t value = 0; value < lastUse.size(); ++value)
    if (lastUse[value] >= 0 && lastUse[value] < end)
      ready.instructions[lastUse[value]].lastUses.push_back(program::ValueId(value));
}

Status Executor::load(const TensorProvider &provider) {
  return loadPieces([&](const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
                        const kernels::TensorType &local) -> Result<Tensor> {
    return pick(convert(provider(tensor.initializer), tensor.type, arith), indices, local);
  });
}

Status Executor::loadPieces(const PieceProvider &provider) {
  for (size_t slot = 0; slot < stageCode->slots.size(); ++slot) {
    Role role = stageCode->slots[slot].role;
    if (role != Role::Parameter && role != Role::State && role != Role::OptimizerState)
      continue;
    if (Status status = loadSlot(slot, provider); !status)
      return status;
  }
  return Status::ok();
}

Status Executor::loadSlot(size_t slotIndex, const PieceProvider &provider) {
  const Slot &slot = stageCode->slots[slotIndex];
  const program::GlobalTensor &tensor = program->tensors[slot.tensor];
  if (tensor.initializer.empty()) {
    contents.setSlot(int(slotIndex), 0, Tensor::fromDoubles(slot.type, arith, {tensor.fill}));
    return Status::ok();
  }
  std::string what =
      "loading \"" + tensor.name + "\" from initializer \"" + tensor.initializer + "\"";
  try {
    Result<Tensor> piece = provider(
        tensor, program::ownedIndices(program->mesh, tensor.piece, coordinates), slot.type);
    if (!piece)
      return Error{piece.error().code, what + ": " + piece.error().message};
    contents.setSlot(int(slotIndex), 0, *piece);
  } catch (const kernels::KernelError &error) {
    return failed(what, error.what());
  }
  return Status::ok();
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

void Executor::beginStep(const StepInputs &inputs) {
  for (int i = 0; i < int(stageCode->slots.size()); ++i) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role == Role::Gradient || slot.role == Role::Loss)
      contents.setSlot(i, 0, Tensor::zeros(slot.type, arith));
    else if (slot.role == Role::Scalar)
      contents.setSlot(i, 0, Tensor::fromDoubles(slot.type, arith, {inputs.learningRate}));
    else if (livesAMicroBatch(slot.role))
      contents.clear(i);
  }
  numReads.clear();
  residualBytes = 0;
}

/// Loads what the block reads and no block has read yet.
Status Executor::loadInputs(const StepInputs &inputs, const Action &action) {
  int64_t microBatch = action.microBatch;
  for (int i : readSlots.at(action)) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role != Role::Input || contents.holds(i, microBatch))
      continue;
    std::string what = "input \"" + program->tensors[slot.tensor].name + "\" of micro-batch " +
                       std::to_string(microBatch);
    try {
      Result<Tensor> piece = inputPiece(inputs, microBatch, slot);
      if (!piece)
        return Error{piece.error().code, what + ": " + piece.error().message};
      contents.setSlot(i, microBatch, *piece);
    } catch (const kernels::KernelError &error) {
      return failed(what, error.what());
    }
  }
  return Status::ok();
}

Result<Tensor> Executor::inputPiece(const StepInputs &inputs, int64_t microBatch,
                                    const Slot &slot) const {
  const program::GlobalTensor &tensor = program->tensors[slot.tensor];
  std::vector<int64_t> indices = program::ownedIndices(program->mesh, tensor.piece, coordinates);
  if (inputs.pieces)
    return inputs.pieces(microBatch, tensor, indices, slot.type);
  const auto &provided = inputs.microBatches[microBatch];
  auto found = provided.find(tensor.name);
  kernels::require(found != provided.end(), "it is not provided");
  return pick(convert(found->second, tensor.type, arith), indices, slot.type);
}

Status Executor::runStep(comm::Communicator &communicator, const StepInputs &inputs) {
  if (!inputs.pieces && int64_t(inputs.microBatches.size()) != program->microBatches)
    return Error{ErrorCode::Usage, "the program takes " + std::to_string(program->microBatches) +
                                       " micro-batches a step, " +
                                       std::to_string(inputs.microBatches.size()) +
                                       " are provided"};
  beginStep(inputs);
  for (const Action &action : program::actionsOf(*program, stageIndex)) {
    if (Status status = loadInputs(inputs, action); !status)
      return status;
    if (Status status = runBlock(communicator, action); !status)
      return status;
    dropRead(action);
  }
  return Status::ok();
}

Status Executor::runBlock(comm::Communicator &communicator, const Action &action) {
  const Block &block = stageCode->block(action);
  const PreparedBlock &ready = prepared.at(action);
  contents.beginBlock(action.microBatch);
  for (const program::Argument &argument : block.arguments) {
    if (!contents.holds(argument.slot, action.microBatch))
      return failed(describe(*program, stageIndex, action),
                    "slot \"" + stageCode->slots[argument.slot].name +
                        "\" is read before it is written");
    contents.bind(argument.value, argument.slot);
  }
  if (Status status = writeResults(action, ready.resultsBefore); !status)
    return status;

  int64_t liveBytes = 0;
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const Instruction &instruction = block.instructions[i];
    Result<std::vector<Tensor>> operands = operandsOf(action, int(i));
    if (!operands)
      return operands.error();
    Result<std::vector<Tensor>> results = runInstruction(communicator, action, int(i), *operands);
    if (!results)
      return results.error();
    for (size_t r = 0; r < results->size(); ++r) {
      contents.define(instruction.results[r], std::move((*results)[r]));
      liveBytes += program::sizeBytes(stageCode->values[instruction.results[r]]);
    }
    use.valuePeakBytes = std::max(use.valuePeakBytes, liveBytes);
    const Prepared &here = ready.instructions[i];
    if (Status status = writeResults(action, here.results); !status)
      return status;
    for (program::ValueId value : here.lastUses) {
      contents.forget(value);
      liveBytes -= ready.isArgument[value] ? 0 : program::sizeBytes(stageCode->values[value]);
    }
  }
  return writeResults(action, ready.resultsAfter);
}

Result<std::vector<Tensor>> Executor::operandsOf(const Action &action, int index) const {
  std::vector<Tensor> operands;
  for (program::ValueId value : stageCode->block(action).instructions[index].operands) {
    std::string what = "value %" + std::to_string(value);
    try {
      operands.push_back(contents.value(value));
    } catch (const kernels::KernelError &error) {
      return failed(place(action, index), what + ": " + error.what());
    }
    if (!operands.back())
      return failed(place(action, index), what + " has no value yet");
  }
  return operands;
}

Result<std::vector<Tensor>> Executor::runInstruction(comm::Communicator &communicator,
                                                     const Action &action, int index,
                                                     const std::vector<Tensor> &operands) {
  const Instruction &instruction = stageCode->block(action).instructions[index];
  const Prepared &ready = prepared.at(action).instructions[index];
  try {
    std::vector<Tensor> results;
    if (ready.kernel) {
      results = ready.kernel(context, instruction.attrs, operands, ready.resultTypes);
    } else {
      kernels::TensorType type =
          ready.resultTypes.empty() ? kernels::TensorType() : ready.resultTypes[0];
      Result<Tensor> result =
          communicate(communicator, instruction, ready.group,
                      operands.empty() ? Tensor() : operands[0], type, place(action, index));
      if (!result)
        return result.error();
      count(instruction);
      if (!ready.resultTypes.empty())
        results.push_back(std::move(*result));
    }
    if (results.size() != ready.resultTypes.size())
      return failed(place(action, index), "it gave " + std::to_string(results.size()) + " results");
    for (size_t r = 0; r < results.size(); ++r) {
      if (results[r].type() != ready.resultTypes[r])
        return failed(place(action, index), "it gave " + toString(results[r].type()) + " where " +
                                                toString(ready.resultTypes[r]) + " is expected");
    }
    return results;
  } catch (const kernels::KernelError &error) {
    return failed(place(action, index), error.what());
  }
}

/// slot + value, in the slot's type.
Tensor Executor::added(const Tensor &slot, Tensor value) const {
  if (value.dtype() != slot.dtype())
    value = kernels::findKernel("cast")(context, {}, {value}, {slot.type()})[0];
  return kernels::findKernel("add")(context, {}, {slot, value}, {slot.type()})[0];
}

/// Writes the results of these numbers, after all of them are read.
Status Executor::writeResults(const Action &action, const std::vector<int> &results) {
  const Block &block = stageCode->block(action);
  std::vector<Tensor> values(results.size());
  auto failedAt = [&](const program::BlockResult &result, const std::string &why) {
    return failed(describe(*program, stageIndex, action) + ", result to slot \"" +
                      stageCode->slots[result.slot].name + "\"",
                  why);
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const program::BlockResult &result = block.results[results[i]];
    try {
      // The memory plan may have it in its slot already.
      if (!contents.isIn(result.value, result.slot))
        values[i] = contents.value(result.value);
    } catch (const kernels::KernelError &error) {
      return failedAt(result, error.what());
    }
    if (!values[i] && !contents.isIn(result.value, result.slot))
      return failedAt(result, "value %" + std::to_string(result.value) + " has no value");
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const program::BlockResult &result = block.results[results[i]];
    try {
      if (!writeResult(action, result, std::move(values[i])))
        return failedAt(result, "it is added to before it is written");
    } catch (const kernels::KernelError &error) {
      return failedAt(result, error.what());
    }
  }
  use.residualPeakBytes = std::max(use.residualPeakBytes, residualBytes);
  return Status::ok();
}

/// `value`: none where it lies in the slot already. False if there is nothing to add to.
bool Executor::writeResult(const Action &action, const program::BlockResult &result, Tensor value) {
  if (result.accumulate) {
    Tensor before = contents.slot(result.slot, action.microBatch);
    if (before)
      contents.setSlot(result.slot, action.microBatch, added(before, std::move(value)));
    return bool(before);
  }
  const Slot &slot = stageCode->slots[result.slot];
  if (slot.role == Role::Residual && numReaders[result.slot] == 0)
    return true; // nobody will read it
  if (slot.role == Role::Residual && !contents.holds(result.slot, action.microBatch))
    residualBytes += program::sizeBytes(slot.type);
  if (value)
    contents.setSlot(result.slot, action.microBatch, value);
  else
    contents.settle(result.slot);
  return true;
}

/// Drops what the last of its readers has read.
void Executor::dropRead(const Action &action) {
  for (int i : readSlots.at(action)) {
    if (++numReads[{i, action.microBatch}] < numReaders[i])
      continue;
    const Slot &slot = stageCode->slots[i];
    if (contents.drop(i, action.microBatch) && slot.role == Role::Residual)
      residualBytes -= program::sizeBytes(slot.type);
  }
}

void Executor::count(const Instruction &instruction) {
  if (instruction.kind == InstructionKind::ShardSlice || instruction.kind == InstructionKind::Recv)
    return;
  std::string axes = instruction.kind == InstructionKind::Send
                         ? program->mesh.axes[program->pipelineAxis].name
                         : toString(program->mesh, instruction.comm.axes);
  int64_t bytes = program::messageBytes(*program, *stageCode, instruction);
  ++counts[{instruction.kind, axes, stageIndex, bytes}];
}

//===----------------------------------------------------------------------===//
// Contents
//===----------------------------------------------------------------------===//

Tensor Executor::held(int tensor) const {
  for (int i = 0; i < int(stageCode->slots.size()); ++i) {
    if (stageCode->slots[i].tensor == tensor && contents.holds(i))
      return contents.slot(i);
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
    contents.setSlot(i, 0, value);
  }
  return Status::ok();
}

Tensor Executor::loss() const {
  for (int i = 0; i < int(stageCode->slots.size()); ++i) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role == Role::Loss && slot.name == "loss" && contents.holds(i))
      return contents.slot(i);
  }
  return Tensor();
}

} // namespace tbc::runtime
