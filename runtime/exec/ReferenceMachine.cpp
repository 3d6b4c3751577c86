//===- ReferenceMachine.cpp - Kernels by their reference meaning -----------===//

#include "runtime/exec/Machine.h"

#include <map>

namespace tbc::runtime {

using kernels::Tensor;
using program::BlockId;
using program::Instruction;
using program::InstructionKind;
using program::ValueId;

namespace {

class ReferenceMachine : public Machine {
public:
  explicit ReferenceMachine(const MachineSetting &setting)
      : program(setting.program), stage(setting.stage), code(program.stages[stage]),
        memory(setting.memory), context(setting.context) {}

  Status prepare(BlockId id) override;
  void run(BlockId id, int index) override;
  void write(const std::vector<SlotWrite> &writes) override;
  bool allowsCommunicationThread() const override { return true; }

private:
  struct Prepared {
    kernels::KernelFn kernel = nullptr;
    std::vector<kernels::TensorType> resultTypes;
  };

  Tensor added(const Tensor &slot, Tensor value) const;

  const program::Program &program;
  int stage;
  const program::Stage &code;
  RankMemory &memory;
  kernels::KernelContext context;
  std::map<BlockId, std::vector<Prepared>> prepared;
};

Status ReferenceMachine::prepare(BlockId id) {
  const program::Block &block = code.block(id);
  std::vector<Prepared> &list = prepared[id];
  list.resize(block.instructions.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Instruction &instruction = block.instructions[i];
    if (instruction.kind != InstructionKind::Kernel)
      continue;
    list[i].kernel = kernels::findKernel(instruction.op);
    if (!list[i].kernel)
      return Error{ErrorCode::Usage, describe(program, stage, id, int(i)) +
                                         ": there is no kernel \"" + instruction.op + "\""};
    for (ValueId value : instruction.results)
      list[i].resultTypes.push_back(code.values[value]);
  }
  return Status::ok();
}

void ReferenceMachine::run(BlockId id, int index) {
  const Instruction &instruction = code.block(id).instructions[index];
  const Prepared &ready = prepared.at(id)[index];
  std::vector<Tensor> operands;
  for (ValueId value : instruction.operands)
    operands.push_back(memory.value(value));
  std::vector<Tensor> results =
      ready.kernel(context, instruction.attrs, operands, ready.resultTypes);
  kernels::require(results.size() == ready.resultTypes.size(),
                   [&] { return "it gave " + std::to_string(results.size()) + " results"; });
  for (size_t r = 0; r < results.size(); ++r) {
    kernels::require(results[r].type() == ready.resultTypes[r], [&] {
      return "it gave " + toString(results[r].type()) + " where " + toString(ready.resultTypes[r]) +
             " is expected";
    });
    memory.define(instruction.results[r], std::move(results[r]));
  }
}

/// Returns slot + value, in the slot's type.
Tensor ReferenceMachine::added(const Tensor &slot, Tensor value) const {
  if (value.dtype() != slot.dtype())
    value = kernels::findKernel("cast")(context, {}, {value}, {slot.type()})[0];
  return kernels::findKernel("add")(context, {}, {slot, value}, {slot.type()})[0];
}

void ReferenceMachine::write(const std::vector<SlotWrite> &writes) {
  std::vector<Tensor> values;
  for (const SlotWrite &write : writes)
    values.push_back(memory.value(write.value));
  int64_t microBatch = memory.microBatchOfBlock();
  for (size_t i = 0; i < writes.size(); ++i) {
    int slot = writes[i].slot;
    memory.setSlot(slot, microBatch,
                   writes[i].accumulate ? added(memory.slot(slot, microBatch), values[i])
                                        : values[i]);
  }
}

} // namespace

Result<std::unique_ptr<Machine>> makeReferenceMachine(const MachineSetting &setting) {
  return std::unique_ptr<Machine>(std::make_unique<ReferenceMachine>(setting));
}

} // namespace tbc::runtime
