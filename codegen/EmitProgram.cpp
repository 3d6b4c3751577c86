//===- EmitProgram.cpp - From per-rank IR to a Program ---------------------===//

#include "codegen/EmitProgram.h"

#include "codegen/EmitBlock.h"
#include "ir/ElementTypes.h"
#include "ir/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace tbc {

static program::Piece toPiece(const PartitionedTensor &tensor) {
  const reshard::TensorLayout &layout = tensor.layout;
  const reshard::Sharding &sharding = tensor.sharding;
  program::Piece piece;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    program::PieceDim pieceDim;
    for (const reshard::Segment &segment : layout.dims[dim].segments) {
      program::PieceSegment pieceSegment;
      for (const reshard::Factor &factor : segment.factors) {
        program::PieceFactor pieceFactor;
        pieceFactor.size = factor.size;
        if (factor.id == tensor.sequenceFactor)
          pieceFactor.zigzag = tensor.zigzag;
        for (const reshard::FactorSharding &fs : sharding.factors)
          if (fs.dim == int(dim) && fs.factor == factor.id)
            pieceFactor.axes = fs.axes;
        pieceSegment.push_back(pieceFactor);
      }
      pieceDim.push_back(pieceSegment);
    }
    piece.dims.push_back(pieceDim);
  }
  piece.flat = sharding.flat;
  return piece;
}

/// Returns the role in the Program of a tensor outside the blocks.
static program::Role programRole(TensorRole role) {
  switch (role) {
  case TensorRole::Parameter:
    return program::Role::Parameter;
  case TensorRole::State:
    return program::Role::State;
  case TensorRole::OptimizerState:
    return program::Role::OptimizerState;
  case TensorRole::Gradient:
    return program::Role::Gradient;
  case TensorRole::Input:
  case TensorRole::Label:
  case TensorRole::Sample:
  case TensorRole::Step:
    return program::Role::Input;
  case TensorRole::Loss:
  case TensorRole::Count:
  case TensorRole::LearningRate:
  case TensorRole::Residual:
  case TensorRole::Receive:
  case TensorRole::Send:
  case TensorRole::GradientAccumulator:
  case TensorRole::LossAccumulator:
  case TensorRole::TotalGradient:
  case TensorRole::ReducedGradient:
    break;
  }
  llvm_unreachable("a role inside blocks");
}

/// Returns the name of a tensor in the Program. Gradients get the suffix ".grad"; otherwise they
/// would share their parameter's name.
static std::string tensorName(const PartitionedTensor &tensor) {
  return tensor.role == TensorRole::Gradient ? tensor.name + ".grad" : tensor.name;
}

static FailureOr<program::GlobalTensor> toGlobalTensor(const PartitionedTensor &tensor) {
  program::GlobalTensor result;
  result.name = tensorName(tensor);
  result.role = programRole(tensor.role);
  if (tensor.role == TensorRole::Parameter || tensor.role == TensorRole::State)
    result.initializer = tensor.name;
  else if (!tensor.copyOf.empty())
    result.initializer = tensor.copyOf;
  else
    result.fill = tensor.initial;
  std::optional<kernels::DType> dtype = dtypeOf(tensor.elementType);
  if (!dtype || !isStorable(*dtype))
    return failure();
  result.type.dtype = *dtype;
  result.type.shape = tensor.layout.shape();
  result.piece = toPiece(tensor);
  for (const reshard::Partial &partial : tensor.sharding.partial)
    result.partial.push_back(partial.axis);
  return result;
}

FailureOr<program::Program> emitProgram(PartitionedStep &step, const EmitOptions &options,
                                        EmittedOps *origins) {
  program::Program result;
  result.metadata = options.metadata;
  result.mesh = options.mesh;
  if (result.mesh.axes.empty()) // one device: a Program's mesh still needs an axis
    result.mesh.axes.push_back({"dp", 1});
  result.pipelineAxis = options.pipelineAxis;
  result.microBatches = options.microBatches;
  result.schedule.generator = schedule::name(options.schedule);
  result.schedule.chunkStage = options.chunkStage;
  for (const PartitionedTensor &tensor : step.tensors) {
    FailureOr<program::GlobalTensor> global = toGlobalTensor(tensor);
    if (failed(global))
      return emitError(step.module->getLoc())
             << "tensor \"" << tensor.name << "\" has element type " << tensor.elementType
             << ", which a Program cannot hold";
    result.tensors.push_back(std::move(*global));
  }
  result.stages.resize(options.numStages);
  if (origins)
    origins->assign(options.numStages, {});
  ChannelTable channels;
  for (int stage = 0; stage < options.numStages; ++stage) {
    StageEmitter emitter(result, result.stages[stage], channels);
    std::vector<int> chunks = program::pipelineOf(result).chunksOf(stage);
    result.stages[stage].chunks.resize(chunks.size());
    auto emit = [&](const char *prefix, int number, program::BlockId id,
                    int chunk) -> LogicalResult {
      auto func = step.module->lookupSymbol<func::FuncOp>(prefix + std::to_string(number));
      if (failed(emitter.emit(func, id, chunk)))
        return failure();
      if (origins)
        (*origins)[stage][id] = emitter.origins;
      return success();
    };
    using Kind = schedule::Action::Kind;
    const char *lastBackwardPrefix = "last_bwd_";
    for (int k = 0; k < int(chunks.size()); ++k)
      for (auto [prefix, kind] :
           {std::pair("fwd_", Kind::Forward), std::pair("bwd_", Kind::Backward),
            std::pair("wgt_", Kind::Weight)})
        if (failed(emit(prefix, chunks[k], {kind, k}, chunks[k])))
          return failure();
    for (int k = 0; k < int(chunks.size()); ++k)
      if (step.module->lookupSymbol(lastBackwardPrefix + std::to_string(chunks[k])) &&
          failed(emit(lastBackwardPrefix, chunks[k], {Kind::LastBackward, k}, chunks[k])))
        return failure();
    if (failed(emit("update_", stage, Kind::Update, -1)))
      return failure();
  }
  // A gradient that several stages hold is a partial sum over them.
  if (options.pipelineAxis >= 0)
    markGradientsOfSeveralStages(result, options.pipelineAxis);
  writeGradientsOfOneTerm(result);
  return result;
}

} // namespace tbc
