//===- GradientValues.cpp - The gradients among a stage's values -----------===//

#include "runtime/cuda/GradientValues.h"

#include <algorithm>

namespace tbc::cuda {

using program::Block;
using program::BlockId;
using program::Instruction;
using program::InstructionKind;

std::vector<bool> gradientsOf(const program::Stage &stage) {
  std::vector<bool> values(stage.values.size()), slots(stage.slots.size());
  for (BlockId id : stage.blocks()) { // in a possible order of execution
    if (id.kind == schedule::Action::Kind::Forward)
      continue;
    const Block &block = stage.block(id);
    for (const program::Argument &argument : block.arguments)
      values[size_t(argument.value)] = slots[size_t(argument.slot)];
    for (const Instruction &instruction : block.instructions) {
      bool isBackwardOp = instruction.kind == InstructionKind::Kernel &&
                          instruction.id.find(".bwd.") != std::string::npos;
      bool isGradient =
          isBackwardOp || instruction.kind == InstructionKind::Recv ||
          std::any_of(instruction.operands.begin(), instruction.operands.end(),
                      [&](program::ValueId operand) { return values[size_t(operand)]; });
      for (program::ValueId result : instruction.results)
        values[size_t(result)] = isGradient;
    }
    for (const program::BlockResult &result : block.results)
      if (stage.slots[size_t(result.slot)].role == program::Role::Residual &&
          values[size_t(result.value)])
        slots[size_t(result.slot)] = true;
  }
  return values;
}

} // namespace tbc::cuda
