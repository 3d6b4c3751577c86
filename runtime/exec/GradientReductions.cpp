//===- GradientReductions.cpp - The collectives that sum gradients ----------===//

#include "runtime/exec/GradientReductions.h"

#include <algorithm>
#include <set>

namespace tbc::runtime {

using program::Instruction;
using program::InstructionKind;
using program::ValueId;

/// Returns the axes along which ranks have different data.
static std::set<int> dataAxes(const program::Program &program) {
  std::set<int> axes;
  auto add = [&](const std::vector<program::AxisRef> &list) {
    for (const program::AxisRef &axis : list)
      axes.insert(axis.axis);
  };
  for (const program::GlobalTensor &tensor : program.tensors) {
    if (tensor.role != program::Role::Input)
      continue;
    add(tensor.piece.flat);
    for (const program::PieceDim &dim : tensor.piece.dims)
      for (const program::PieceSegment &segment : dim)
        for (const program::PieceFactor &factor : segment)
          add(factor.axes);
  }
  return axes;
}

std::vector<bool> gradientReductions(const program::Program &program, int stageIndex,
                                     program::BlockId id) {
  const program::Stage &stage = program.stages[stageIndex];
  const program::Block &block = stage.block(id);
  std::set<ValueId> read, written; // values of gradient slots
  for (const program::Argument &argument : block.arguments)
    if (stage.slots[argument.slot].role == program::Role::Gradient)
      read.insert(argument.value);
  for (const program::BlockResult &result : block.results)
    if (stage.slots[result.slot].role == program::Role::Gradient)
      written.insert(result.value);
  std::set<int> axes = dataAxes(program);
  auto areAll = [](const std::vector<ValueId> &values, const std::set<ValueId> &in) {
    return !values.empty() && std::all_of(values.begin(), values.end(),
                                          [&](ValueId value) { return in.count(value) > 0; });
  };
  std::vector<bool> list;
  for (const Instruction &instruction : block.instructions) {
    const program::Communication &comm = instruction.comm;
    bool isSum =
        instruction.kind == InstructionKind::ReduceScatter ||
        (instruction.kind == InstructionKind::AllReduce && comm.reduce == program::ReduceKind::Sum);
    bool isOverData =
        std::all_of(comm.axes.begin(), comm.axes.end(),
                    [&](const program::AxisRef &axis) { return axes.count(axis.axis) > 0; });
    bool isF32 =
        std::all_of(instruction.operands.begin(), instruction.operands.end(), [&](ValueId value) {
          return stage.values[value].dtype == kernels::DType::F32;
        });
    list.push_back(isSum && isOverData && isF32 &&
                   (areAll(instruction.operands, read) || areAll(instruction.results, written)));
  }
  return list;
}

/// Returns whether some kernel of the program is this op.
static bool hasKernel(const program::Program &program, const std::string &op) {
  for (const program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks())
      for (const Instruction &instruction : stage.block(id).instructions)
        if (instruction.kind == InstructionKind::Kernel && instruction.op == op)
          return true;
  return false;
}

bool skipsOverflow(const program::Program &program) {
  return hasKernel(program, "count_not_finite");
}

std::string whyNotCompressed(const program::Program &program) {
  if (skipsOverflow(program))
    return "the program scales its loss and skips the steps that overflow, and what such a step "
           "keeps back would spoil the next ones; plan with --precision bf16 or f32, or with "
           "--loss-scale none";
  for (int stage = 0; stage < program.numStages(); ++stage)
    for (program::BlockId id : program.stages[stage].blocks()) {
      std::vector<bool> isSum = gradientReductions(program, stage, id);
      for (size_t i = 0; i < isSum.size(); ++i) {
        const Instruction &instruction = program.stages[stage].block(id).instructions[i];
        if (isSum[i] && program::groupSizeOf(instruction.comm, program.pipelineAxis) > 1)
          return "";
      }
    }
  return "the program sums no gradients of f32 over ranks that have other data; plan with an axis "
         "dp or fsdp";
}

} // namespace tbc::runtime
