//===- ExecutorInstructions.cpp - One instruction of a rank ----------------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/Failed.h"
#include "runtime/exec/Packing.h"

#include <algorithm>

namespace tbc::runtime {

using kernels::Tensor;
using program::Block;
using program::Instruction;
using program::InstructionKind;
using schedule::Action;

/// Checks that operands of instructions `begin` to `end` have values, except operands defined
/// within this range.
Status Executor::checkOperands(const Action &action, int begin, int end) const {
  const Block &block = stageCode->block(action);
  for (int i = begin; i < end; ++i)
    for (program::ValueId value : block.instructions[i].operands) {
      bool isWithin = std::any_of(block.instructions.begin() + begin,
                                  block.instructions.begin() + i, [&](const Instruction &earlier) {
                                    return std::find(earlier.results.begin(), earlier.results.end(),
                                                     value) != earlier.results.end();
                                  });
      if (!isWithin && !contents->hasValue(value))
        return failed(place(action, i), "value %" + std::to_string(value) + " has no value yet");
    }
  return Status::ok();
}

/// Executes instruction `index` and those that the machine executes with it. Returns the index
/// after them.
Result<int> Executor::runInstructions(comm::Communicator &communicator, const Action &action,
                                      int index) {
  const Block &block = stageCode->block(action);
  bool isKernel = block.instructions[index].kind == InstructionKind::Kernel;
  int next = index + (isKernel ? machine->numAtOnce(action, index) : 1);
  if (Status status = checkOperands(action, index, next); !status)
    return status.error();
  try {
    if (isKernel)
      machine->run(action, index);
    else if (Status status = communicateOne(communicator, action, index); !status)
      return status.error();
    return next;
  } catch (const kernels::KernelError &error) {
    return failed(place(action, index), error);
  }
}

Status Executor::communicateOne(comm::Communicator &communicator, const Action &action, int index) {
  const Instruction &instruction = stageCode->block(action).instructions[index];
  const Prepared &ready = prepared.at(action).instructions[index];
  Result<bool> isDone = machine->communicate(communicator, action, index, ready.group, ready.layout,
                                             place(action, index));
  Status status = !isDone                ? Status(isDone.error())
                  : *isDone              ? Status::ok()
                  : contents->hasBytes() ? communicateBytes(communicator, action, index)
                                         : communicateTensors(communicator, action, index);
  if (status)
    count(instruction, ready);
  return status;
}

/// Communicates in place, at the planned addresses of operands and results.
Status Executor::communicateBytes(comm::Communicator &communicator, const Action &action,
                                  int index) {
  const Instruction &instruction = stageCode->block(action).instructions[index];
  const Prepared &ready = prepared.at(action).instructions[index];
  auto placed = [&](const std::vector<program::ValueId> &values) {
    std::vector<PlacedTensor> list;
    for (program::ValueId value : values)
      list.push_back({contents->bytesOf(value), stageCode->values[value]});
    return list;
  };
  std::vector<PlacedTensor> inputs = placed(instruction.operands),
                            results = placed(instruction.results);
  auto move = ready.isNarrow ? communicateNarrowly : communicateOnMemory;
  Status status = ready.sparseSum
                      ? ready.sparseSum->run(communicator, inputs, results, place(action, index))
                      : move(communicator, instruction, ready.group, ready.layout, arith, inputs,
                             results, place(action, index));
  for (program::ValueId value : instruction.results)
    if (status)
      contents->defineInPlace(value);
  return status;
}

Status Executor::communicateTensors(comm::Communicator &communicator, const Action &action,
                                    int index) {
  const Instruction &instruction = stageCode->block(action).instructions[index];
  std::vector<Tensor> operands;
  for (program::ValueId value : instruction.operands)
    operands.push_back(contents->value(value));
  if (isHostCopy(instruction.kind)) {
    contents->define(instruction.results[0], operands[0]);
    return Status::ok();
  }
  std::vector<kernels::TensorType> types = typesOf(instruction.results);
  Result<std::vector<Tensor>> results =
      communicate(communicator, instruction, prepared.at(action).instructions[index].group,
                  operands, types, place(action, index));
  if (!results)
    return results.error();
  for (size_t r = 0; r < types.size(); ++r) {
    kernels::require((*results)[r].type() == types[r], [&] {
      return "it gave " + toString((*results)[r].type()) + " where " + toString(types[r]) +
             " is expected";
    });
    contents->define(instruction.results[r], std::move((*results)[r]));
  }
  return Status::ok();
}

void Executor::count(const Instruction &instruction, const Prepared &ready) {
  if (instruction.kind == InstructionKind::ShardSlice ||
      instruction.kind == InstructionKind::Recv || isHostCopy(instruction.kind))
    return;
  std::string axes = instruction.kind == InstructionKind::Send
                         ? program->mesh.axes[program->pipelineAxis].name
                         : toString(program->mesh, instruction.comm.axes);
  int64_t bytes = ready.sparse ? ready.sparse->messageBytes()
                               : program::messageBytes(*program, *stageCode, instruction);
  ++counts[{instruction.kind, axes, stageIndex, ready.isNarrow ? bytes / 2 : bytes}];
}

} // namespace tbc::runtime
