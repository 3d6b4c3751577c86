//===- GradientReductions.cpp - Which communication sums gradients ----------===//

#include "runtime/exec/GradientReductions.h"

#include <algorithm>
#include <set>

namespace tbc::runtime {

using program::Instruction;
using program::InstructionKind;
using program::ValueId;

/// The axes along which ranks have different data.
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
  std::set<ValueId> read, written; // of gradients
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

} // namespace tbc::runtime
