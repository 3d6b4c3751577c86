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

static bool livesAMicroBatch(Role role) { return role == Role::Residual || role == Role::Input; }

static Error failed(const std::string &place, const std::string &why) {
  return Error{ErrorCode::RankFailed, place + ": " + why};
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Executor::Executor(const program::Program &program, int64_t rank,
                   const kernels::KernelContext &context)
    : program(&program), self(rank), coordinates(program.mesh.coordinates(rank)),
      stageIndex(program.stageOf(coordinates)), context(context), arith(context.arith) {
  stageCode = &program.stages[stageIndex];
  slots.resize(stageCode->slots.size());
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
  std::vector<Prepared> &list = prepared[id];
  std::set<int> &read = readSlots[id];
  for (const program::Argument &argument : block.arguments)
    if (livesAMicroBatch(stageCode->slots[argument.slot].role))
      read.insert(argument.slot);
  numReaders.resize(slots.size(), 0);
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
  markLastUses(id);
  return Status::ok();
}

void Executor::markLastUses(BlockId id) {
  const Block &block = stageCode->block(id);
  std::vector<bool> isRead(stageCode->values.size(), false);
  for (const program::BlockResult &result : block.results)
    isRead[result.value] = true;
  for (size_t i = block.instructions.size(); i-- > 0;) {
    const Instruction &instruction = block.instructions[i];
    for (const std::vector<program::ValueId> *list :
         {&instruction.results, &instruction.operands}) {
      for (program::ValueId value : *list) {
        if (!isRead[value])
          prepared[id][i].lastUses.push_back(value);
        isRead[value] = true;
      }
    }
  }
}

Status Executor::load(const TensorProvider &provider) {
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    Role role = stageCode->slots[slot].role;
    if (role != Role::Parameter && role != Role::State && role != Role::OptimizerState)
      continue;
    if (Status status = loadSlot(slot, provider); !status)
      return status;
  }
  return Status::ok();
}

Status Executor::loadSlot(size_t slotIndex, const TensorProvider &provider) {
  const Slot &slot = stageCode->slots[slotIndex];
  const program::GlobalTensor &tensor = program->tensors[slot.tensor];
  if (tensor.initializer.empty()) {
    slots[slotIndex][0] = Tensor::fromDoubles(slot.type, arith, {tensor.fill});
    return Status::ok();
  }
  try {
    Tensor whole = convert(provider(tensor.initializer), tensor.type, arith);
    slots[slotIndex][0] =
        pick(whole, program::ownedIndices(program->mesh, tensor.piece, coordinates), slot.type);
  } catch (const kernels::KernelError &error) {
    return failed("loading \"" + tensor.name + "\" from initializer \"" + tensor.initializer + "\"",
                  error.what());
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

int64_t Executor::instanceOf(int slot, int64_t microBatch) const {
  return livesAMicroBatch(stageCode->slots[slot].role) ? microBatch : 0;
}

std::string Executor::place(const Action &action, int index) const {
  std::string text = describe(*program, stageIndex, action, index);
  if (action.kind != Kind::Update)
    text += ", micro-batch " + std::to_string(action.microBatch);
  return text;
}

void Executor::beginStep(const StepInputs &inputs) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role == Role::Gradient || slot.role == Role::Loss)
      slots[i][0] = Tensor::zeros(slot.type, arith);
    else if (slot.role == Role::Scalar)
      slots[i][0] = Tensor::fromDoubles(slot.type, arith, {inputs.learningRate});
    else if (livesAMicroBatch(slot.role))
      slots[i].clear();
  }
  numReads.clear();
  residualBytes = 0;
}

/// Loads what the block reads and no block has read yet.
Status Executor::loadInputs(const StepInputs &inputs, const Action &action) {
  int64_t microBatch = action.microBatch;
  for (int i : readSlots.at(action)) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role != Role::Input || slots[i].count(microBatch))
      continue;
    const program::GlobalTensor &tensor = program->tensors[slot.tensor];
    const auto &provided = inputs.microBatches[microBatch];
    auto found = provided.find(tensor.name);
    std::string what = "input \"" + tensor.name + "\" of micro-batch " + std::to_string(microBatch);
    if (found == provided.end())
      return failed(what, "it is not provided");
    try {
      Tensor whole = convert(found->second, tensor.type, arith);
      slots[i][microBatch] =
          pick(whole, program::ownedIndices(program->mesh, tensor.piece, coordinates), slot.type);
    } catch (const kernels::KernelError &error) {
      return failed(what, error.what());
    }
  }
  return Status::ok();
}

Status Executor::runStep(comm::Communicator &communicator, const StepInputs &inputs) {
  if (int64_t(inputs.microBatches.size()) != program->microBatches)
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
  std::string blockPlace = describe(*program, stageIndex, action);
  std::vector<Tensor> values(stageCode->values.size());
  std::vector<bool> isArgument(values.size(), false);
  for (const program::Argument &argument : block.arguments) {
    const Contents &contents = slots[argument.slot];
    auto found = contents.find(instanceOf(argument.slot, action.microBatch));
    if (found == contents.end())
      return failed(blockPlace, "slot \"" + stageCode->slots[argument.slot].name +
                                    "\" is read before it is written");
    values[argument.value] = found->second;
    isArgument[argument.value] = true;
  }

  int64_t liveBytes = 0;
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const Instruction &instruction = block.instructions[i];
    std::vector<Tensor> operands;
    for (program::ValueId value : instruction.operands) {
      if (!values[value])
        return failed(place(action, int(i)),
                      "value %" + std::to_string(value) + " has no value yet");
      operands.push_back(values[value]);
    }
    Result<std::vector<Tensor>> results = runInstruction(communicator, action, int(i), operands);
    if (!results)
      return results.error();
    for (size_t r = 0; r < instruction.results.size(); ++r) {
      values[instruction.results[r]] = std::move((*results)[r]);
      liveBytes += program::sizeBytes(stageCode->values[instruction.results[r]]);
    }
    use.valuePeakBytes = std::max(use.valuePeakBytes, liveBytes);
    for (program::ValueId value : prepared.at(action)[i].lastUses) {
      values[value] = Tensor();
      liveBytes -= isArgument[value] ? 0 : program::sizeBytes(stageCode->values[value]);
    }
  }
  return writeResults(action, values);
}

Result<std::vector<Tensor>> Executor::runInstruction(comm::Communicator &communicator,
                                                     const Action &action, int index,
                                                     const std::vector<Tensor> &operands) {
  const Instruction &instruction = stageCode->block(action).instructions[index];
  const Prepared &ready = prepared.at(action)[index];
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

Status Executor::writeResults(const Action &action, const std::vector<Tensor> &values) {
  for (const program::BlockResult &result : stageCode->block(action).results) {
    const Slot &slot = stageCode->slots[result.slot];
    std::string where =
        describe(*program, stageIndex, action) + ", result to slot \"" + slot.name + "\"";
    if (!values[result.value])
      return failed(where, "value %" + std::to_string(result.value) + " has no value");
    Contents &contents = slots[result.slot];
    int64_t instance = instanceOf(result.slot, action.microBatch);
    if (result.accumulate) {
      auto found = contents.find(instance);
      if (found == contents.end())
        return failed(where, "it is added to before it is written");
      found->second = added(found->second, values[result.value]);
      continue;
    }
    if (slot.role == Role::Residual && numReaders[result.slot] == 0)
      continue; // nobody will read it
    if (slot.role == Role::Residual && !contents.count(instance))
      residualBytes += program::sizeBytes(slot.type);
    contents[instance] = values[result.value];
  }
  use.residualPeakBytes = std::max(use.residualPeakBytes, residualBytes);
  return Status::ok();
}

/// Drops what the last of its readers has read.
void Executor::dropRead(const Action &action) {
  for (int i : readSlots.at(action)) {
    if (++numReads[{i, action.microBatch}] < numReaders[i])
      continue;
    const Slot &slot = stageCode->slots[i];
    if (slots[i].erase(action.microBatch) && slot.role == Role::Residual)
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
  for (size_t i = 0; i < slots.size(); ++i) {
    auto found = slots[i].find(0);
    if (stageCode->slots[i].tensor == tensor && found != slots[i].end())
      return found->second;
  }
  return Tensor();
}

Status Executor::set(int tensor, const Tensor &value) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot &slot = stageCode->slots[i];
    if (slot.tensor != tensor)
      continue;
    if (value.type() != slot.type)
      return failed("slot \"" + slot.name + "\"", "it is set to a " + toString(value.type()) +
                                                      ", its type is " + toString(slot.type));
    slots[i][0] = value;
  }
  return Status::ok();
}

Tensor Executor::loss() const {
  for (size_t i = 0; i < slots.size(); ++i) {
    auto found = slots[i].find(0);
    const Slot &slot = stageCode->slots[i];
    if (slot.role == Role::Loss && slot.name == "loss" && found != slots[i].end())
      return found->second;
  }
  return Tensor();
}

} // namespace tbc::runtime
