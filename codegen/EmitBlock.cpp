//===- EmitBlock.cpp - From one per-rank function to a block of a stage -----===//

#include "codegen/EmitBlock.h"

#include "ir/Collective.h"
#include "ir/Evaluate.h"
#include "ir/Host.h"
#include "ir/PerRank.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace tbc {

using program::Instruction;
using program::InstructionKind;

StageEmitter::StageEmitter(program::Program &program, program::Stage &stage, ChannelTable &channels)
    : program(program), stage(stage), channels(channels) {}

FailureOr<program::ValueId> StageEmitter::define(Value value) {
  std::optional<kernels::TensorType> type = toKernelType(value.getType());
  if (!type)
    return emitError(value.getLoc()) << "type " << value.getType() << " cannot be in a Program";
  program::ValueId id = stage.values.size();
  stage.values.push_back(*type);
  ids[value] = id;
  return id;
}

void StageEmitter::address(program::Communication &comm, StringRef name, int from, int to) {
  schedule::Pipeline pipeline = program::pipelineOf(program);
  bool isForward = id.kind == schedule::Action::Kind::Forward;
  std::string key = (isForward ? "fwd " : "bwd ") + name.str();
  comm.channel = channels.insert({{key, from, to}, int64_t(channels.size())}).first->second;
  comm.peerStage = pipeline.chunkStage[chunk == from ? to : from];
  // Messages from one block to another arrive in order. With one chunk per stage, messages of
  // different blocks do too, because a stage sends to another in one phase only. Several chunks per
  // stage need one lane per (from, to, phase).
  if (pipeline.numChunks() > pipeline.numStages)
    comm.lane = 2 * (from * pipeline.numChunks() + to) + (isForward ? 0 : 1);
}

/// Returns the role of the slot for arguments and results with `role`; absent if they have none.
static std::optional<program::Role> slotRoleOf(TensorRole role) {
  using program::Role;
  switch (role) {
  case TensorRole::Parameter:
    return Role::Parameter;
  case TensorRole::State:
    return Role::State;
  case TensorRole::OptimizerState:
    return Role::OptimizerState;
  case TensorRole::GradientAccumulator:
  case TensorRole::TotalGradient:
  case TensorRole::ReducedGradient:
    return Role::Gradient;
  case TensorRole::LossAccumulator:
  case TensorRole::Loss:
    return Role::Loss;
  case TensorRole::Input:
  case TensorRole::Label:
    return Role::Input;
  case TensorRole::Residual:
    return Role::Residual;
  case TensorRole::LearningRate:
    return Role::Scalar;
  case TensorRole::Sample:
  case TensorRole::Step:
  case TensorRole::Gradient:
  case TensorRole::Count:
  case TensorRole::Receive:
  case TensorRole::Send:
    return std::nullopt;
  }
  llvm_unreachable("no role");
}

FailureOr<int> StageEmitter::slot(std::optional<TensorRole> role, StringRef name,
                                  kernels::TensorType type, DictionaryAttr attrs, Location loc) {
  using program::Role;
  std::optional<Role> slotRole = role ? slotRoleOf(*role) : std::nullopt;
  StringRef roleName = role ? stringifyTensorRole(*role) : "";
  if (!slotRole)
    return emitError(loc) << "role \"" << roleName << "\" of \"" << name << "\" has no slot";
  const bool isReduced = role == TensorRole::ReducedGradient;
  std::string slotName = isReduced                     ? (name + ".grad.reduced").str()
                         : *slotRole == Role::Gradient ? (name + ".grad").str()
                                                       : name.str();
  auto [it, isNew] = slots.insert(
      {std::string(program::name(*slotRole)) + " " + slotName, int(stage.slots.size())});
  if (!isNew)
    return it->second;
  program::Slot result;
  result.name = slotName;
  result.role = *slotRole;
  result.type = std::move(type);
  if (attrs && attrs.contains(kOnHostAttr))
    result.location = program::Location::Host;
  if (!isReduced && *slotRole != Role::Residual && *slotRole != Role::Loss &&
      *slotRole != Role::Scalar) {
    result.tensor = program.tensorIndex(slotName);
    if (result.tensor < 0)
      return emitError(loc) << "there is no tensor \"" << slotName << "\" for role \"" << roleName
                            << "\"";
    // Gradient accumulators have the optimizer's type, which may be wider than one contribution.
    // Example: f32 for bf16 gradients.
    if (*slotRole == Role::Gradient)
      result.type.dtype = program.tensors[result.tensor].type.dtype;
  }
  stage.slots.push_back(std::move(result));
  return it->second;
}

LogicalResult StageEmitter::emit(func::FuncOp function, program::BlockId blockId, int modelChunk) {
  func = function;
  id = blockId;
  chunk = modelChunk;
  block = &stage.block(id);
  ids.clear();
  if (failed(emitArguments()))
    return failure();
  origins.assign(block->instructions.size(), nullptr); // receives
  for (Operation &op : func.getBody().front().without_terminator()) {
    if (failed(emitOp(op)))
      return failure();
    origins.resize(block->instructions.size(), &op);
  }
  if (failed(emitResults()))
    return failure();
  origins.resize(block->instructions.size(), nullptr); // sends
  return success();
}

static StringRef text(Attribute attr) {
  auto string = dyn_cast_or_null<StringAttr>(attr);
  return string ? string.getValue() : "";
}

LogicalResult StageEmitter::emitArguments() {
  for (BlockArgument arg : func.getArguments()) {
    std::optional<TensorRole> role = argumentRole(func, arg.getArgNumber());
    StringRef name = text(func.getArgAttr(arg.getArgNumber(), kNameAttr));
    FailureOr<program::ValueId> value = define(arg);
    if (failed(value))
      return failure();
    if (role != TensorRole::Receive) {
      FailureOr<int> place = slot(role, name, stage.values[*value],
                                  func.getArgAttrDict(arg.getArgNumber()), func.getLoc());
      if (failed(place))
        return failure();
      block->arguments.push_back({*value, *place});
      continue;
    }
    int peer = cast<IntegerAttr>(func.getArgAttr(arg.getArgNumber(), kPeerAttr)).getInt();
    Instruction recv;
    recv.id = ("recv " + name).str();
    recv.kind = InstructionKind::Recv;
    address(recv.comm, name, peer, chunk);
    recv.results = {*value};
    block->instructions.push_back(std::move(recv));
  }
  return success();
}

/// Reads "tp" or "tp:(2)4" (a part of an axis).
static FailureOr<program::AxisRef> parseAxis(const program::Mesh &mesh, StringRef text) {
  auto [name, part] = text.split(':');
  int axis = mesh.axisIndex(name.str());
  if (axis < 0)
    return failure();
  if (part.empty())
    return program::wholeAxis(mesh, axis);
  program::AxisRef result;
  result.axis = axis;
  if (!part.consume_front("(") || part.consumeInteger(10, result.pre) || !part.consume_front(")") ||
      part.consumeInteger(10, result.size))
    return failure();
  return result;
}

static std::vector<program::SegmentShape> toSegments(int64_t dim, ArrayRef<int64_t> numbers) {
  std::vector<program::SegmentShape> result;
  for (size_t i = 0; dim >= 0 && i + 2 < numbers.size(); i += 3)
    result.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  return result;
}

LogicalResult StageEmitter::emitCommunication(Operation &op, Instruction &instruction) {
  program::Communication &comm = instruction.comm;
  for (StringRef text : op.getAttrOfType<ArrayAttr>("axes").getAsValueRange<StringAttr>()) {
    FailureOr<program::AxisRef> axis = parseAxis(program.mesh, text);
    if (failed(axis))
      return op.emitOpError() << "names axis \"" << text << "\", which the mesh does not have";
    comm.axes.push_back(*axis);
  }
  auto setDim = [&](auto collective) {
    comm.dim = collective.getDim();
    comm.segments = toSegments(comm.dim, collective.getSegments());
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](AllReduceOp reduce) {
        instruction.kind = InstructionKind::AllReduce;
        comm.reduce =
            reduce.getKind() == "max" ? program::ReduceKind::Max : program::ReduceKind::Sum;
        if (auto stages = reduce.getStages())
          comm.stages.assign(stages->begin(), stages->end());
        return success();
      })
      .Case([&](AllGatherOp gather) {
        instruction.kind = InstructionKind::AllGather;
        setDim(gather);
        return success();
      })
      .Case([&](ReduceScatterOp scatter) {
        instruction.kind = InstructionKind::ReduceScatter;
        setDim(scatter);
        return success();
      })
      .Case([&](ShardSliceOp slice) {
        instruction.kind = InstructionKind::ShardSlice;
        setDim(slice);
        return success();
      })
      .Case([&](AllToAllOp exchange) {
        instruction.kind = InstructionKind::AllToAll;
        setDim(exchange);
        comm.splitDim = exchange.getSplitDim();
        comm.splitSegments = toSegments(comm.splitDim, exchange.getSplitSegments());
        return success();
      })
      .Case([&](PermuteOp) {
        instruction.kind = InstructionKind::Permute;
        return success();
      })
      .Default([](Operation *unknown) {
        return unknown->emitOpError("is a collective that a Program does not have");
      });
}

LogicalResult StageEmitter::emitOp(Operation &op) {
  Instruction instruction;
  auto id = op.getAttrOfType<StringAttr>(kIdAttr);
  instruction.id = id ? id.str() : op.getName().stripDialect().str();
  for (Value operand : op.getOperands())
    instruction.operands.push_back(ids.lookup(operand));
  if (isa<OffloadOp, FetchOp>(op)) {
    instruction.kind = isa<OffloadOp>(op) ? InstructionKind::Offload : InstructionKind::Fetch;
  } else if (op.hasAttr("axes")) {
    if (failed(emitCommunication(op, instruction)))
      return failure();
  } else {
    instruction.op = op.getName().stripDialect().str();
    FailureOr<kernels::Attrs> attrs = toKernelAttrs(&op);
    if (failed(attrs))
      return failure();
    instruction.attrs = std::move(*attrs);
  }
  for (Value result : op.getResults()) {
    FailureOr<program::ValueId> value = define(result);
    if (failed(value))
      return failure();
    instruction.results.push_back(*value);
  }
  // A collective joins the one before it if both belong to the same bucket.
  auto bucket = op.getAttrOfType<DenseI64ArrayAttr>(kBucketAttr);
  Operation *before = op.getPrevNode();
  if (bucket && before && before->getAttr(kBucketAttr) == bucket) {
    Instruction &joint = block->instructions.back();
    for (program::ValueId operand : instruction.operands)
      joint.operands.push_back(operand);
    for (program::ValueId result : instruction.results)
      joint.results.push_back(result);
    return success();
  }
  if (auto kernel = op.getAttrOfType<IntegerAttr>(kKernelAttr)) {
    bool isNew = !before || before->getAttr(kKernelAttr) != kernel;
    if (isNew)
      block->regions.push_back({int(block->instructions.size()), 0, "", 0});
    ++block->regions.back().count;
  }
  block->instructions.push_back(std::move(instruction));
  return success();
}

LogicalResult StageEmitter::emitResults() {
  Operation *terminator = func.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    std::optional<TensorRole> role = resultRole(func, i);
    StringRef name = text(func.getResultAttr(i, kNameAttr));
    program::ValueId valueId = ids.lookup(value);
    if (role == TensorRole::Send) {
      int peer = cast<IntegerAttr>(func.getResultAttr(i, kPeerAttr)).getInt();
      Instruction send;
      send.id = ("send " + name).str();
      send.kind = InstructionKind::Send;
      address(send.comm, name, chunk, peer);
      send.operands = {valueId};
      block->instructions.push_back(std::move(send));
      continue;
    }
    FailureOr<int> place =
        slot(role, name, stage.values[valueId], func.getResultAttrDict(i), value.getLoc());
    if (failed(place))
      return failure();
    bool isSum = role == TensorRole::GradientAccumulator || role == TensorRole::LossAccumulator;
    block->results.push_back({valueId, *place, isSum});
  }
  return success();
}

void markGradientsOfSeveralStages(program::Program &program, int pipelineAxis) {
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].role != program::Role::Gradient)
      continue;
    int holders = 0;
    for (const program::Stage &stage : program.stages)
      for (const program::Slot &slot : stage.slots)
        holders += slot.tensor == int(t);
    if (holders > 1)
      program.tensors[t].partial.push_back(program::wholeAxis(program.mesh, pipelineAxis));
  }
}

void writeGradientsOfOneTerm(program::Program &program) {
  if (program.microBatches != 1)
    return;
  for (program::Stage &stage : program.stages) {
    std::map<int, std::vector<program::BlockResult *>> terms; // by slot
    for (program::BlockId id : stage.blocks())
      for (program::BlockResult &result : stage.block(id).results)
        if (stage.slots[result.slot].role == program::Role::Gradient)
          terms[result.slot].push_back(&result);
    for (auto &[slot, results] : terms)
      if (results.size() == 1 && stage.values[results[0]->value] == stage.slots[slot].type)
        results[0]->accumulate = false;
  }
}

} // namespace tbc
