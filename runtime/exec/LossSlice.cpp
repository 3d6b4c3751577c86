//===- LossSlice.cpp - The part of an update that completes the loss --------===//

#include "runtime/exec/LossSlice.h"

#include <algorithm>

namespace tbc::runtime {

using program::Block;
using program::Instruction;
using program::InstructionKind;

static bool crossesStages(const program::Program &program, const Instruction &instruction) {
  if (instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv)
    return true;
  const std::vector<program::AxisRef> &axes = instruction.comm.axes;
  return isCommunication(instruction.kind) && program.pipelineAxis >= 0 &&
         std::any_of(axes.begin(), axes.end(), [&](const program::AxisRef &axis) {
           return axis.axis == program.pipelineAxis;
         });
}

std::vector<bool> lossSlice(const program::Program &program, int stageIndex) {
  const program::Stage &stage = program.stages[stageIndex];
  const Block &block = stage.update;
  std::vector<bool> isNeeded(stage.values.size(), false), isIn(block.instructions.size(), false);
  for (const program::BlockResult &result : block.results)
    if (stage.slots[result.slot].role == program::Role::Loss)
      isNeeded[result.value] = true;
  // Backwards, so that uses come before definitions. A region counts as one instruction.
  auto region = block.regions.rbegin();
  for (int end = int(block.instructions.size()); end > 0;) {
    int first = end - 1;
    if (region != block.regions.rend() && region->first + region->count == end) {
      first = region->first;
      ++region;
    }
    bool isTaken = false;
    for (int i = first; i < end; ++i) {
      const Instruction &instruction = block.instructions[i];
      isTaken |= crossesStages(program, instruction) ||
                 std::any_of(instruction.results.begin(), instruction.results.end(),
                             [&](program::ValueId value) { return isNeeded[value]; });
    }
    for (int i = first; isTaken && i < end; ++i) {
      isIn[i] = true;
      for (program::ValueId value : block.instructions[i].operands)
        isNeeded[value] = true;
    }
    end = first;
  }
  return isIn;
}

} // namespace tbc::runtime
