//===- Partition.cpp - From the whole step to each stage's functions -------===//

#include "passes/partition/Partition.h"

#include "ir/MatrixUpdate.h"
#include "ir/Roles.h"
#include "passes/Passes.h"
#include "passes/partition/LocalBlock.h"
#include "passes/partition/LocalUpdate.h"
#include "passes/plan/InsertCollectives.h"
#include "planner/reshard/SequenceOrder.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_PARTITIONPASS
#include "passes/Passes.h.inc"

using reshard::ValueRole;

/// A scalar of the whole step: every rank holds it.
static void addStepState(func::FuncOp update, BlockArgument arg, PartitionedStep &result) {
  PartitionedTensor tensor;
  tensor.name = update.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr).str();
  tensor.role = TensorRole::OptimizerState;
  tensor.elementType = tensorType(arg).getElementType();
  tensor.layout.elementBytes = elementBytes(tensor.elementType);
  if (auto initial = update.getArgAttrOfType<FloatAttr>(arg.getArgNumber(), kInitialAttr))
    tensor.initial = initial.getValueAsDouble();
  result.tensors.push_back(std::move(tensor));
}

/// Makes `tensor` a state of whole matrices: of its dims, only the first may be cut, and only where
/// it numbers matrices.
static void makeWhole(PartitionedTensor &tensor, const reshard::MatrixUpdate *update,
                      RankedTensorType type) {
  const int numDims = tensor.layout.dims.size();
  tensor.sharding = reshard::matrixSharding(tensor.sharding, update, numDims);
  if (reshard::isStack(update, numDims))
    tensor.layout.dims.resize(1);
  else
    tensor.layout.dims.clear();
  for (int64_t dim = tensor.layout.dims.size(); dim < type.getRank(); ++dim)
    tensor.layout.dims.push_back({{{{{-1 - dim, type.getDimSize(dim)}}}}});
}

/// Collects the tensors that outlive blocks, with their shardings.
static LogicalResult collectTensors(const PartitionInput &in, PartitionedStep &result) {
  auto elementType = [&](int value) { return tensorType(in.step.values[value]).getElementType(); };
  auto add = [&](StringRef name, TensorRole role, int value, const reshard::Sharding &sharding,
                 Type type) {
    PartitionedTensor tensor;
    tensor.name = name.str();
    tensor.role = role;
    tensor.layout = in.graph.values[value].layout;
    tensor.sharding = sharding;
    tensor.elementType = type;
    tensor.sequenceFactor = in.graph.sequenceFactor;
    result.tensors.push_back(std::move(tensor));
    return &result.tensors.back();
  };
  llvm::StringMap<int> parameters;
  for (auto [p, parameter] : llvm::enumerate(in.graph.parameters)) {
    const std::string &name = in.graph.values[parameter.value].name;
    parameters[name] = p;
    add(name, TensorRole::Parameter, parameter.value, in.derivation.stored[p],
        elementType(parameter.value));
  }
  for (auto [i, value] : llvm::enumerate(in.graph.values))
    if (value.producer < 0 && (value.role == ValueRole::State || value.role == ValueRole::Input))
      add(value.name, value.role == ValueRole::State ? TensorRole::State : TensorRole::Input, i,
          in.derivation.home[i], elementType(i))
          ->zigzag = in.zigzag;

  // Gradients and optimizer states: the arguments of @update, beside their parameter.
  func::FuncOp update = in.update;
  for (BlockArgument arg : update.getArguments()) {
    std::optional<TensorRole> role = argumentRole(update, arg.getArgNumber());
    auto name = update.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr);
    if (!role || !name)
      continue;
    if (role == TensorRole::Gradient) {
      int p = parameters.lookup(name.getValue());
      // As it is at the end of a step.
      const bool isReduced = in.derivation.isReducedLast[p] && in.derivation.isReducedInPlace(p);
      add(name.getValue(), TensorRole::Gradient, in.graph.parameters[p].value,
          isReduced ? in.derivation.state[p] : in.derivation.gradient[p],
          tensorType(arg).getElementType());
    } else if (role == TensorRole::OptimizerState) {
      auto of = update.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kParameterAttr);
      if (!of) {
        addStepState(update, arg, result);
        continue;
      }
      auto it = parameters.find(of.getValue());
      if (it == parameters.end())
        return update.emitError() << "optimizer state \"" << name.getValue()
                                  << "\" belongs to no parameter of the step";
      int value = in.graph.parameters[it->second].value;
      PartitionedTensor *tensor =
          add(name.getValue(), TensorRole::OptimizerState, value, in.derivation.state[it->second],
              tensorType(arg).getElementType());
      if (update.getArgAttr(arg.getArgNumber(), kMasterAttr))
        tensor->copyOf = of.getValue().str();
      if (update.getArgAttr(arg.getArgNumber(), kWholeAttr))
        makeWhole(*tensor, in.graph.parameters[it->second].matrices.get(), tensorType(arg));
      if (auto initial = update.getArgAttrOfType<FloatAttr>(arg.getArgNumber(), kInitialAttr))
        tensor->initial = initial.getValueAsDouble();
    }
  }
  return success();
}

FailureOr<PartitionedStep> partitionStep(DerivedStep &step) {
  if (failed(checkShardings(step)) || failed(checkCollectives(step)))
    return failure();
  PlannedStep &planned = step.planned;
  const reshard::BlockKernels kernels =
      reshard::planKernels(planned.graph, planned.assignment, step.derivation);
  const std::vector<bool> repeatedOps = reshard::repeatedOps(planned.graph);
  const std::vector<bool> positions = reshard::positionValues(planned.graph);
  PartitionInput in{planned.train,
                    planned.update,
                    *planned.analysis,
                    planned.step,
                    planned.graph,
                    planned.assignment,
                    step.derivation,
                    step.overlap,
                    kernels,
                    repeatedOps,
                    positions,
                    planned.zigzag,
                    {},
                    {}};
  for (auto [i, op] : llvm::enumerate(in.step.graph.ops))
    in.opById[op.id] = in.step.ops[i];
  for (BlockArgument arg : in.update.getArguments())
    if (auto name = in.update.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr);
        name && argumentRole(in.update, arg.getArgNumber()) == TensorRole::Gradient)
      in.accumulatorTypes[name.getValue()] = tensorType(arg).getElementType();

  PartitionedStep result;
  result.module = ModuleOp::create(in.train.getLoc());
  using reshard::Phase;
  for (int chunk = 0; chunk < in.assignment.numChunks(); ++chunk)
    for (Phase phase : {Phase::Forward, Phase::Backward, Phase::Weight})
      if (failed(LocalBlock(in, *result.module, phase, chunk).build()))
        return failure();
  if (llvm::is_contained(in.derivation.isReducedLast, true) &&
      failed(LocalBlock(in, *result.module, Phase::Backward, 0, /*isLast=*/true).build()))
    return failure();
  for (int stage = 0; stage < in.assignment.numStages; ++stage)
    if (failed(LocalUpdate(in, *result.module, stage).build()))
      return failure();
  if (failed(collectTensors(in, result)))
    return failure();
  return std::move(result);
}

/// Returns the tensors that outlive blocks as text: name, role, whole type, sharding.
static ArrayAttr describe(MLIRContext *context, const reshard::Mesh &mesh,
                          const std::vector<PartitionedTensor> &tensors) {
  OpBuilder builder(context);
  SmallVector<Attribute> list;
  for (const PartitionedTensor &tensor : tensors) {
    auto type = RankedTensorType::get(tensor.layout.shape(), tensor.elementType);
    list.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("name", builder.getStringAttr(tensor.name)),
         builder.getNamedAttr("role", TensorRoleAttr::get(context, tensor.role)),
         builder.getNamedAttr("type", TypeAttr::get(type)),
         builder.getNamedAttr("sharding",
                              toAttribute(context, mesh, tensor.sharding, type.getRank()))}));
  }
  return builder.getArrayAttr(list);
}

namespace {
struct Partition : impl::PartitionPassBase<Partition> {
  Partition() = default;
  explicit Partition(std::vector<PartitionedTensor> &tensors) : tensors(&tensors) {}
  Partition(const Partition &other) : PartitionPassBase(other), tensors(other.tensors) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<DerivedStep> &step = getAnalysis<DerivedStepAnalysis>().step;
    if (failed(step))
      return signalPassFailure();
    FailureOr<PartitionedStep> partitioned = partitionStep(*step);
    if (failed(partitioned))
      return signalPassFailure();
    module->setAttr(kTensorsAttr,
                    describe(&getContext(), step->planned.assignment.mesh, partitioned->tensors));
    if (tensors)
      *tensors = std::move(partitioned->tensors);
    module.getBody()->clear();
    module.getBody()->getOperations().splice(module.getBody()->end(),
                                             partitioned->module->getBody()->getOperations());
  }

private:
  std::vector<PartitionedTensor> *tensors = nullptr;
};
} // namespace

std::unique_ptr<Pass> createPartitionPass(std::vector<PartitionedTensor> &tensors) {
  return std::make_unique<Partition>(tensors);
}

} // namespace tbc
