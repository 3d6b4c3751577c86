//===- ProgramBuilder.cpp - Programs by hand, for tests --------------------===//

#include "tests/runtime/support/ProgramBuilder.h"

#include <cassert>

namespace tbc::program {

using kernels::DType;
using kernels::Shape;

static int slotIndex(const Stage &stage, const std::string &name) {
  for (size_t i = 0; i < stage.slots.size(); ++i) {
    if (stage.slots[i].name == name)
      return static_cast<int>(i);
  }
  assert(false && "a builder names slots that exist");
  return -1;
}

ValueId BlockBuilder::newValue(DType dtype, Shape shape) {
  stage.values.push_back({dtype, std::move(shape)});
  return static_cast<ValueId>(stage.values.size()) - 1;
}

ValueId BlockBuilder::read(const std::string &slot) {
  int index = slotIndex(stage, slot);
  for (const Argument &argument : block.arguments) {
    if (argument.slot == index)
      return argument.value;
  }
  ValueId value = newValue(stage.slots[index].type.dtype, stage.slots[index].type.shape);
  block.arguments.push_back({value, index});
  return value;
}

void BlockBuilder::write(const std::string &slot, ValueId value, bool accumulate) {
  block.results.push_back({value, slotIndex(stage, slot), accumulate});
}

ValueId BlockBuilder::kernel(const std::string &id, const std::string &op,
                             std::vector<ValueId> operands, Shape shape, kernels::Attrs attrs) {
  DType dtype = operands.empty() ? DType::F32 : stage.values[operands[0]].dtype;
  ValueId result = newValue(dtype, std::move(shape));
  block.instructions.push_back(
      {id, InstructionKind::Kernel, op, std::move(attrs), {}, std::move(operands), {result}});
  return result;
}

std::vector<ValueId> BlockBuilder::kernels(const std::string &id, const std::string &op,
                                           std::vector<ValueId> operands, int numResults,
                                           kernels::Attrs attrs) {
  std::vector<ValueId> results;
  kernels::TensorType type = stage.values[operands[0]];
  for (int i = 0; i < numResults; ++i)
    results.push_back(newValue(type.dtype, type.shape));
  block.instructions.push_back(
      {id, InstructionKind::Kernel, op, std::move(attrs), {}, std::move(operands), results});
  return results;
}

ValueId BlockBuilder::einsum(const std::string &id, ValueId lhs, ValueId rhs,
                             std::vector<int64_t> lhsLabels, std::vector<int64_t> rhsLabels,
                             std::vector<int64_t> outLabels, Shape shape) {
  return kernel(id, "einsum", {lhs, rhs}, std::move(shape),
                {{"lhs_labels", lhsLabels}, {"rhs_labels", rhsLabels}, {"out_labels", outLabels}});
}

ValueId BlockBuilder::constant(const std::string &id, double value, Shape shape) {
  return kernel(id, "constant", {}, std::move(shape), {{"value", std::vector<double>{value}}});
}

Communication BlockBuilder::over(const std::string &axis) const {
  Communication comm;
  comm.axes = {wholeAxis(program.mesh, program.mesh.axisIndex(axis))};
  return comm;
}

ValueId BlockBuilder::collective(const std::string &id, InstructionKind kind, ValueId value,
                                 Communication comm, Shape shape) {
  ValueId result = newValue(stage.values[value].dtype, std::move(shape));
  block.instructions.push_back({id, kind, "", {}, std::move(comm), {value}, {result}});
  return result;
}

ValueId BlockBuilder::allReduce(const std::string &id, ValueId value, const std::string &axis,
                                std::vector<int> stages) {
  Communication comm = over(axis);
  comm.stages = std::move(stages);
  return collective(id, InstructionKind::AllReduce, value, comm, stage.values[value].shape);
}

ValueId BlockBuilder::allGatherFlat(const std::string &id, ValueId value, const std::string &axis,
                                    Shape full) {
  return collective(id, InstructionKind::AllGather, value, over(axis), std::move(full));
}

int64_t BlockBuilder::chunkOf(ValueId value, const std::string &axis) const {
  int64_t n = program.mesh.axes[program.mesh.axisIndex(axis)].size;
  return (kernels::numElements(stage.values[value].shape) + n - 1) / n;
}

ValueId BlockBuilder::reduceScatterFlat(const std::string &id, ValueId value,
                                        const std::string &axis) {
  return collective(id, InstructionKind::ReduceScatter, value, over(axis), {chunkOf(value, axis)});
}

ValueId BlockBuilder::shardSliceFlat(const std::string &id, ValueId value,
                                     const std::string &axis) {
  return collective(id, InstructionKind::ShardSlice, value, over(axis), {chunkOf(value, axis)});
}

void BlockBuilder::send(const std::string &id, ValueId value, int toStage, int64_t channel,
                        int lane) {
  Communication comm;
  comm.peerStage = toStage;
  comm.channel = channel;
  comm.lane = lane;
  block.instructions.push_back({id, InstructionKind::Send, "", {}, comm, {value}, {}});
}

ValueId BlockBuilder::recv(const std::string &id, Shape shape, int fromStage, int64_t channel,
                           int lane) {
  Communication comm;
  comm.peerStage = fromStage;
  comm.channel = channel;
  comm.lane = lane;
  ValueId result = newValue(DType::F32, std::move(shape));
  block.instructions.push_back({id, InstructionKind::Recv, "", {}, comm, {}, {result}});
  return result;
}

int addTensor(Program &program, Role role, const std::string &name, const std::string &initializer,
              Piece piece, std::vector<AxisRef> partial) {
  kernels::TensorType type{DType::F32, globalShape(piece)};
  program.tensors.push_back(
      {name, role, initializer, std::move(type), std::move(piece), std::move(partial)});
  return static_cast<int>(program.tensors.size()) - 1;
}

void addSlot(Program &program, int stage, int tensor) {
  const GlobalTensor &global = program.tensors[tensor];
  kernels::TensorType type{global.type.dtype, localShape(global.piece)};
  program.stages[stage].slots.push_back({global.name, global.role, tensor, std::move(type)});
}

void addSlot(Program &program, int stage, Role role, const std::string &name, Shape shape,
             DType dtype) {
  program.stages[stage].slots.push_back({name, role, -1, {dtype, std::move(shape)}});
}

} // namespace tbc::program
