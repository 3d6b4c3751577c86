//===- LocalUpdate.cpp - The update function of one stage ------------------===//

#include "passes/partition/LocalUpdate.h"

#include "ir/Collective.h"
#include "ir/Formula.h"
#include "ir/MatrixUpdate.h"
#include "ir/Movement.h"
#include "ir/Optimizer.h"

#include "passes/optimizer/BuildUpdate.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace tbc {

using reshard::Sharding;
using reshard::Where;

LocalUpdate::LocalUpdate(const PartitionInput &input, ModuleOp module, int stage)
    : in(input), stage(stage), function(module, "update_" + std::to_string(stage)) {
  assignParameters();
}

/// Returns true if `op` sums over every element of every gradient: on a rank, over the elements
/// that it owns.
static bool isOwnedSum(Operation &op) { return isa<SquareSumOp, CountNotFiniteOp>(op); }

static StringRef argAttr(func::FuncOp func, unsigned index, StringRef attr) {
  auto value = func.getArgAttrOfType<StringAttr>(index, attr);
  return value ? value.getValue() : "";
}

/// Finds the parameter of each value of @update: by the names of parameter and gradient arguments,
/// then through the ops.
void LocalUpdate::assignParameters() {
  llvm::StringMap<int> byName;
  for (auto [p, parameter] : llvm::enumerate(in.graph.parameters))
    byName[in.graph.values[parameter.value].name] = p;
  for (BlockArgument arg : in.update.getArguments()) {
    std::optional<TensorRole> role = argumentRole(in.update, arg.getArgNumber());
    auto it = byName.find(argAttr(in.update, arg.getArgNumber(), kNameAttr));
    if ((role == TensorRole::Parameter || role == TensorRole::Gradient) && it != byName.end())
      parameterOf[arg] = it->second;
    if (role == TensorRole::Gradient && it != byName.end())
      gradientOf[it->second] = arg;
  }
  Operation *terminator = in.update.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    if (resultRole(in.update, i) == TensorRole::Parameter)
      newParameters[value] = in.update.getResultAttrOfType<StringAttr>(i, kNameAttr).getValue();
    else if (resultRole(in.update, i) == TensorRole::OptimizerState)
      newStates.insert(value);
  for (Operation &op : in.update.getBody().front().without_terminator()) {
    auto known = llvm::find_if(op.getOperands(), [&](Value v) { return parameterOf.count(v); });
    if (isOwnedSum(op)) // of all parameters
      continue;
    if (known == op.getOperands().end())
      continue;
    int parameter = parameterOf.lookup(*known);
    for (Value operand : op.getOperands())
      if (auto arg = dyn_cast<BlockArgument>(operand))
        if (!argAttr(in.update, arg.getArgNumber(), kParameterAttr).empty())
          parameterOf[arg] = parameter;
    for (Value result : op.getResults())
      parameterOf[result] = parameter;
  }
  for (auto [value, name] : newParameters)
    if (auto known = parameterOf.find(value); known != parameterOf.end())
      newValueOf[known->second] = value;
}

/// Returns the parameter whose update `op` is a part of, or noParameter.
int LocalUpdate::parameterOfOp(Operation *op) const {
  for (Value result : op->getResults())
    if (auto it = parameterOf.find(result); it != parameterOf.end())
      return it->second;
  return noParameter;
}

bool LocalUpdate::holds(int parameter) const {
  return llvm::is_contained(in.derivation.parameterStages[parameter], stage);
}

/// Returns true if blocks of this stage compute a part of the gradient.
bool LocalUpdate::hasPart(int parameter) const {
  return llvm::any_of(in.derivation.gradientParts[parameter].parts,
                      [&](const reshard::GradientParts::Part &part) {
                        return in.assignment.stageOf(part.chunk) == stage;
                      });
}

/// Returns the contribution of a stage without a part to the sum over stages.
Value LocalUpdate::zeros(int parameter, Type elementType) {
  const reshard::TensorLayout &layout =
      in.graph.values[in.graph.parameters[parameter].value].layout;
  return splat(function.builder(), in.update.getLoc(),
               RankedTensorType::get(reshard::localShape(layout, in.derivation.gradient[parameter]),
                                     elementType),
               0);
}

Value LocalUpdate::apply(Value value, int graphValue, Where where, const Sharding &from,
                         const Sharding &to) {
  const reshard::TensorLayout &layout = in.graph.values[graphValue].layout;
  Sharding current = from;
  for (const reshard::Reshard &reshard : in.derivation.reshards) {
    if (reshard.where != where || reshard.stage != stage || reshard.value != graphValue)
      continue;
    value = in.overlap.bucket(in.derivation, reshard) >= 0
                ? reduceBucket(reshard)
                : emitReshard(function.builder(), in.update.getLoc(), value, reshard, layout,
                              in.assignment.mesh);
    current = reshard.to;
  }
  if (current == to)
    return value;
  // The rest cuts a replicated tensor into shards, which moves no data.
  reshard::Reshard rest;
  rest.from = current;
  rest.to = to;
  rest.steps = reshard::reshard(in.assignment.mesh, layout, current, to);
  for (const reshard::Collective &step : rest.steps)
    if (step.kind != reshard::CollectiveKind::ShardSlice) {
      emitError(in.update.getLoc())
          << "the derivation lacks the collectives that take \"" << in.graph.values[graphValue].name
          << "\" from " << reshard::toString(in.assignment.mesh, current) << " to "
          << reshard::toString(in.assignment.mesh, to) << " in the update";
      return {};
    }
  return emitReshard(function.builder(), in.update.getLoc(), value, rest, layout,
                     in.assignment.mesh);
}

/// Returns the result of `wanted` on the gradient of its parameter. The first one emits all
/// reductions of its bucket.
Value LocalUpdate::reduceBucket(const reshard::Reshard &wanted) {
  if (Value known = reduced.lookup(&wanted))
    return known;
  SmallVector<BucketMember> members;
  int bucket = in.overlap.bucket(in.derivation, wanted);
  for (int index : in.overlap.buckets[bucket].reshards) {
    const reshard::Reshard &reshard = in.derivation.reshards[index];
    auto isItsParameter = [&](const reshard::GraphParameter &parameter) {
      return parameter.gradient == reshard.value;
    };
    int parameter =
        llvm::find_if(in.graph.parameters, isItsParameter) - in.graph.parameters.begin();
    members.push_back({in.update.getLoc(), accumulated(parameter), &reshard,
                       &in.graph.values[reshard.value].layout});
  }
  emitBucket(function.builder(), members, bucket, in.assignment.mesh);
  for (const BucketMember &member : members)
    reduced[member.reshard] = member.value;
  return reduced.lookup(&wanted);
}

/// Returns the gradient of a parameter as accumulated by the blocks of this stage.
Value LocalUpdate::accumulated(int p) {
  Value &known = gradients[p];
  if (known)
    return known;
  BlockArgument arg = gradientOf.lookup(p);
  Type elementType = tensorType(arg).getElementType();
  if (!hasPart(p))
    return known = zeros(p, elementType);
  const reshard::TensorLayout &layout = in.graph.values[in.graph.parameters[p].value].layout;
  auto type =
      RankedTensorType::get(reshard::localShape(layout, in.derivation.gradient[p]), elementType);
  return known = function.addArgument(type, TensorRole::GradientAccumulator,
                                      argAttr(in.update, arg.getArgNumber(), kNameAttr));
}

/// Returns the local value of a state of parameter `p`: its shard, or that of whole matrices.
Value LocalUpdate::stateArgument(BlockArgument arg, int p, StringRef name) {
  const bool isWhole = in.update.getArgAttr(arg.getArgNumber(), kWholeAttr) != nullptr;
  auto type =
      RankedTensorType::get(localResultShape(arg, p, isWhole), tensorType(arg).getElementType());
  return in.assignment.offloadsStates
             ? function.fetchArgument(type, TensorRole::OptimizerState, name)
             : function.addArgument(type, TensorRole::OptimizerState, name);
}

/// Returns the local value of an argument of @update on the state's shard, for the optimizer.
Value LocalUpdate::argument(BlockArgument arg) {
  if (Value known = local.lookup(arg))
    return known;
  TensorRole role = *argumentRole(in.update, arg.getArgNumber());
  StringRef name = argAttr(in.update, arg.getArgNumber(), kNameAttr);
  auto type = tensorType(arg);
  Value result;
  bool isStepState = role == TensorRole::OptimizerState &&
                     argAttr(in.update, arg.getArgNumber(), kParameterAttr).empty();
  if (role == TensorRole::LearningRate || isStepState) {
    result = function.addArgument(type, role, name);
  } else if (role == TensorRole::Loss) {
    result = scalarArgument(arg, name);
  } else {
    int p = parameterOf.lookup(arg);
    int value = in.graph.parameters[p].value;
    const reshard::TensorLayout &layout = in.graph.values[value].layout;
    const Sharding &state = in.derivation.state[p];
    auto add = [&](const Sharding &sharding) {
      return function.addArgument(
          RankedTensorType::get(reshard::localShape(layout, sharding), type.getElementType()), role,
          name);
    };
    if (role == TensorRole::Gradient && in.derivation.isReducedLast[p])
      result = function.addArgument(
          RankedTensorType::get(reshard::localShape(layout, state), type.getElementType()),
          in.derivation.isReducedInPlace(p) ? TensorRole::GradientAccumulator
                                            : TensorRole::ReducedGradient,
          name);
    else if (role == TensorRole::Gradient)
      result = apply(accumulated(p), in.graph.parameters[p].gradient, Where::GradientStep,
                     in.derivation.gradient[p], state);
    else if (role == TensorRole::Parameter)
      result = apply(add(in.derivation.stored[p]), value, Where::GradientStep,
                     in.derivation.stored[p], state);
    else
      result = stateArgument(arg, p, name);
  }
  return local[arg] = result;
}

Value LocalUpdate::operandOf(Value value) {
  if (Value known = local.lookup(value))
    return known;
  auto arg = dyn_cast<BlockArgument>(value);
  return arg ? argument(arg) : Value();
}

//===----------------------------------------------------------------------===//
// The whole step
//===----------------------------------------------------------------------===//

int LocalUpdate::stageOf(int graphValue) const {
  int producer = in.graph.values[graphValue].producer;
  return producer < 0 ? 0 : in.assignment.stageOf(in.graph.ops[producer].chunk);
}

/// Reshapes a tensor of one element to a scalar, or (`dims` 1) a scalar to a vector.
static Value withDims(Formula &f, Value value, int64_t dims) {
  SmallVector<int64_t> in(tensorType(value).getRank(), 0), out(dims, 0);
  return f.make<ReshapeOp>(value, ArrayRef<int64_t>{}, in, out);
}

/// Returns the axes along which ranks of one stage hold replicas of a tensor with this sharding.
std::vector<reshard::AxisRef> LocalUpdate::replicatedAxes(const Sharding &sharding) const {
  const reshard::Mesh &mesh = in.assignment.mesh;
  std::vector<reshard::AxisRef> used = reshard::usedAxes(sharding), axes;
  for (int axis = 0; axis < int(mesh.axes.size()); ++axis) {
    reshard::AxisRef whole = reshard::wholeAxis(mesh, axis);
    if (axis != in.assignment.pipelineAxis && !reshard::overlap(used, whole))
      axes.push_back(whole);
  }
  return axes;
}

/// Returns a scalar, equal on ranks along `axes`, on the first of them and 0 on the others. So a
/// sum over all ranks counts it once. Example: 3 on 4 ranks becomes 3, 0, 0, 0.
Value LocalUpdate::onFirst(Value scalar, const std::vector<reshard::AxisRef> &axes) {
  if (axes.empty())
    return scalar;
  reshard::Collective slice;
  slice.kind = reshard::CollectiveKind::ShardSlice;
  slice.axes = axes;
  slice.numElements = 1;
  Formula f{function.builder(), in.update.getLoc()};
  Value chunk = emitCollective(f.builder, f.loc, scalar, slice, in.assignment.mesh, {1});
  return withDims(f, chunk, 0);
}

/// Returns the rank's part of the step's loss or count, which lies on one stage.
Value LocalUpdate::scalarArgument(BlockArgument arg, StringRef name) {
  auto type = tensorType(arg);
  int value = name == "count" ? in.graph.count : in.graph.loss;
  if (stageOf(value) != stage)
    return splat(function.builder(), in.update.getLoc(), type, 0);
  return onFirst(function.addArgument(type, TensorRole::LossAccumulator, name),
                 replicatedAxes(in.derivation.home[value]));
}

/// The most gradients of one sum. A kernel of a GPU takes an address of each; its parameters have
/// 4 KiB, 512 addresses (CUDA C++ Programming Guide, __global__ function parameters).
static constexpr size_t mostGradientsOfASum = 256;

/// Sums over the gradients owned by this stage; a parameter of several stages belongs to the first.
/// Gradients on the same axes are added up together, some at a time.
LogicalResult LocalUpdate::emitOwnedSum(Operation &op) {
  std::map<std::vector<reshard::AxisRef>, SmallVector<Value>> owned; // by replicated axes
  for (Value gradient : op.getOperands()) {
    int parameter = parameterOf.lookup(gradient);
    if (!holds(parameter))
      continue;
    // All ranks that hold it complete it, at the same position of their order of collectives.
    Value part = operandOf(gradient);
    if (!part)
      return failure();
    if (in.derivation.parameterStages[parameter].front() == stage)
      owned[replicatedAxes(in.derivation.state[parameter])].push_back(part);
  }
  Formula f{function.builder(), op.getLoc()};
  Value total;
  size_t next = 0;
  for (const auto &[axes, parts] : owned)
    for (ArrayRef<Value> rest = parts; !rest.empty(); rest = rest.drop_front(next)) {
      next = std::min(rest.size(), mostGradientsOfASum);
      OperationState state(op.getLoc(), op.getName(), rest.take_front(next), op.getResultTypes(),
                           op.getAttrs());
      Value sum = onFirst(f.builder.create(state)->getResult(0), axes);
      total = total ? f.add(total, sum) : sum;
    }
  local[op.getResult(0)] = total ? total : splat(f.builder, f.loc, tensorType(op.getResult(0)), 0);
  return success();
}

/// Adds up `scalars` over ranks in one all_reduce, for the results of `op`.
void LocalUpdate::addTogether(Operation &op, SmallVector<Value> scalars,
                              const reshard::Reshard &derived) {
  Formula f{function.builder(), op.getLoc()};
  for (Value &scalar : scalars)
    scalar = withDims(f, scalar, 1);
  const int64_t count = scalars.size();
  Value all = count == 1 ? scalars.front() : f.make<ConcatOp>(scalars, 0);
  all = emitCollective(function.builder(), op.getLoc(), all, derived.steps.front(),
                       in.assignment.mesh, {count});
  for (auto [i, total] : llvm::enumerate(op.getResults()))
    local[total] = withDims(f, count == 1 ? all : f.make<SliceOp>(all, 0, i, 1), 0);
}

/// One all_reduce of all scalars over every rank, as derived.
LogicalResult LocalUpdate::emitStepTotal(Operation &op) {
  SmallVector<Value> parts;
  for (Value part : op.getOperands()) {
    parts.push_back(operandOf(part));
    if (!parts.back())
      return failure();
  }
  auto derived = llvm::find_if(in.derivation.reshards, [&](const reshard::Reshard &reshard) {
    return reshard.where == Where::StepTotal && reshard.stage == stage;
  });
  if (derived == in.derivation.reshards.end()) {
    if (in.assignment.mesh.numRanks() > 1)
      return op.emitError("the derivation lacks the all_reduce of the step's scalars");
    for (auto [total, part] : llvm::zip_equal(op.getResults(), parts))
      local[total] = part;
    return success();
  }
  addTogether(op, parts, *derived);
  return success();
}

/// An op on scalars is the same on every rank.
LogicalResult LocalUpdate::emitScalarOp(Operation &op) {
  if (isOwnedSum(op))
    return emitOwnedSum(op);
  if (isa<StepTotalOp>(op))
    return emitStepTotal(op);
  SmallVector<Value> operands;
  for (Value operand : op.getOperands()) {
    operands.push_back(operandOf(operand));
    if (!operands.back())
      return failure();
  }
  for (Type type : op.getResultTypes())
    if (cast<RankedTensorType>(type).getRank() != 0)
      return op.emitError(
          "belongs to no parameter; the update of a stage is made of the updates of "
          "its parameters and of ops on scalars");
  OperationState state(op.getLoc(), op.getName(), operands, op.getResultTypes(), op.getAttrs());
  Operation *clone = function.builder().create(state);
  joinRun(clone, noParameter);
  for (auto [from, to] : llvm::zip_equal(op.getResults(), clone->getResults()))
    local[from] = to;
  return success();
}

/// Puts an op into the kernel of the op right before it, if that is of the same parameter, or of
/// none as well, and both are nests of loops; else into a new one. All work element by element on
/// one shape.
void LocalUpdate::joinRun(Operation *op, int parameter) {
  auto id = op->getAttrOfType<StringAttr>(kIdAttr);
  bool isObserved = id && id.getValue() == kGradientNormId;
  if (!cast<CostOpInterface>(op).isLoopNest() || isObserved)
    return;
  if (!lastOfRun || op->getPrevNode() != lastOfRun || parameter != parameterOfRun)
    ++numKernels;
  lastOfRun = op;
  parameterOfRun = parameter;
  op->setAttr(kKernelAttr, function.builder().getI64IntegerAttr(numKernels));
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

LogicalResult LocalUpdate::emitOp(Operation &op, int parameter) {
  if (isa<GatherMatricesOp>(op))
    return gatherMatrices(op, parameter);
  if (isa<ShardMatricesOp>(op)) {
    shardMatrices(op, parameter);
    return success();
  }
  if (isa<SquareTotalsOp>(op))
    return emitSquareTotals(op, parameter);
  OperationState state(op.getLoc(), op.getName());
  for (Value operand : op.getOperands()) {
    Value value = operandOf(operand);
    if (!value)
      return failure();
    state.operands.push_back(value);
  }
  const bool onMatrices = isOnMatrices(op);
  for (Value result : op.getResults())
    state.addTypes(RankedTensorType::get(localResultShape(result, parameter, onMatrices),
                                         tensorType(result).getElementType()));
  state.addAttributes(op.getAttrs());
  Operation *clone = function.builder().create(state);
  if (onMatrices) {
    matrices.insert(op.result_begin(), op.result_end());
    joinMatrixKernel(op, clone);
  } else {
    joinRun(clone, parameter);
  }
  for (auto [from, to] : llvm::zip_equal(op.getResults(), clone->getResults()))
    local[from] = to;
  return success();
}

/// Returns the gather of the new value of a parameter, if it is a member of a bucket, or null.
const reshard::Reshard *LocalUpdate::jointGather(int parameter) const {
  for (const reshard::Reshard &reshard : in.derivation.reshards)
    if (reshard.where == Where::ParameterStep && reshard.stage == stage &&
        reshard.value == in.graph.parameters[parameter].value &&
        in.overlap.bucket(in.derivation, reshard) >= 0)
      return &reshard;
  return nullptr;
}

/// Gathers the bucket of `ready`, whose shard is `value`, once all members are computed.
void LocalUpdate::gatherBucket(const reshard::Reshard &ready, Value value, StringRef name) {
  const int bucket = in.overlap.bucket(in.derivation, ready);
  auto &computed = waiting[bucket];
  computed[&ready] = {value, name};
  const std::vector<int> &wanted = in.overlap.buckets[bucket].reshards;
  if (computed.size() < wanted.size())
    return;
  SmallVector<BucketMember> members;
  for (int index : wanted) {
    const reshard::Reshard &reshard = in.derivation.reshards[index];
    members.push_back({in.update.getLoc(), computed.at(&reshard).first, &reshard,
                       &in.graph.values[reshard.value].layout});
  }
  emitBucket(function.builder(), members, bucket, in.assignment.mesh);
  for (const BucketMember &member : members)
    function.addResult(member.value, TensorRole::Parameter, computed.at(member.reshard).second);
}

/// Gathers a new parameter to its stored sharding as soon as the ops on it have run, so that
/// gathers do not all wait for the state's shards. The ops stay in a row, one kernel.
void LocalUpdate::emitNewParameter(int p) {
  Value value = newValueOf.lookup(p);
  if (!value || !local.count(value))
    return;
  StringRef name = newParameters.lookup(value);
  newValueOf.erase(p);
  if (const reshard::Reshard *gather = jointGather(p))
    gatherBucket(*gather, local.lookup(value), name);
  else if (Value stored =
               apply(local.lookup(value), in.graph.parameters[p].value, Where::ParameterStep,
                     in.derivation.state[p], in.derivation.stored[p]))
    function.addResult(stored, TensorRole::Parameter, name);
}

/// Offloads new states as soon as they are computed, so that the states of two parameters are never
/// on the device together. Those of whole matrices leave behind all ops on matrices, whose kernels
/// they would divide. Scalars of the whole step stay.
void LocalUpdate::offloadNewStates(Operation &op) {
  if (!in.assignment.offloadsStates)
    return;
  auto offload = [&](Operation &maker) {
    for (Value value : maker.getResults())
      if (newStates.contains(value))
        onHost[value] = function.offload(local.lookup(value));
  };
  if (isa<ShardMatricesOp>(op))
    for (Operation *maker : matrixOps(gatherOf(op)))
      offload(*maker);
  else if (!isOnMatrices(op))
    offload(op);
}

void LocalUpdate::emitResults() {
  Operation *terminator = in.update.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    auto it = parameterOf.find(value);
    Value result = local.lookup(value);
    TensorRole role = *resultRole(in.update, i);
    auto name = in.update.getResultAttrOfType<StringAttr>(i, kNameAttr).getValue();
    if (role == TensorRole::Loss &&
        stageOf(name == "count" ? in.graph.count : in.graph.loss) == stage)
      function.addResult(result, role, name);
    if (role == TensorRole::OptimizerState && it == parameterOf.end())
      function.addResult(result, role, name);
    if (it == parameterOf.end() || !result || !holds(it->second))
      continue;
    if (Value stored = onHost.lookup(value))
      function.addHostResult(stored, role, name);
    else if (role != TensorRole::Parameter)
      function.addResult(result, role, name);
  }
}

/// Completes the step's loss over data ranks once, unless it is one of the step's totals.
void LocalUpdate::emitLoss() {
  int loss = in.graph.loss;
  if (loss < 0 || in.graph.stepTotalBytes > 0 || in.graph.values[loss].producer < 0 ||
      stageOf(loss) != stage)
    return;
  auto type = tensorType(in.step.values[in.step.graph.loss]);
  Value total = function.addArgument(type, TensorRole::LossAccumulator, "loss");
  for (const reshard::Reshard &reshard : in.derivation.reshards)
    if (reshard.where == Where::Loss)
      total = emitReshard(function.builder(), in.update.getLoc(), total, reshard,
                          in.graph.values[loss].layout, in.assignment.mesh);
  function.addResult(total, TensorRole::Loss, "loss");
}

/// Holds the tensors of the model that the step does not read.
void LocalUpdate::holdUnused() {
  auto hold = [&](int value, TensorRole role, const Sharding &sharding) {
    const reshard::GraphValue &unused = in.graph.values[value];
    Type elementType = tensorType(in.step.values[value]).getElementType();
    function.addArgument(
        RankedTensorType::get(reshard::localShape(unused.layout, sharding), elementType), role,
        unused.name);
  };
  for (auto [p, parameter] : llvm::enumerate(in.graph.parameters))
    if (parameter.gradient < 0 && in.graph.values[parameter.value].users.empty() && holds(p))
      hold(parameter.value, TensorRole::Parameter, in.derivation.stored[p]);
  for (auto [i, value] : llvm::enumerate(in.graph.values))
    if (value.role == reshard::ValueRole::State && value.producer < 0 && value.users.empty() &&
        stage == 0)
      hold(i, TensorRole::State, in.derivation.home[i]);
}

LogicalResult LocalUpdate::build() {
  for (Operation &op : in.update.getBody().front().without_terminator()) {
    const int parameter = parameterOfOp(&op);
    if (parameter == noParameter) {
      if (mlir::failed(emitScalarOp(op)))
        return failure();
    } else if (holds(parameter)) {
      if (mlir::failed(emitOp(op, parameter)))
        return failure();
      offloadNewStates(op);
      if (parameterOfOp(op.getNextNode()) != parameter)
        emitNewParameter(parameter);
    }
  }
  emitResults();
  emitLoss();
  holdUnused();
  function.finish();
  // Drops scalars of the step that only other stages want. The norm of the gradients stays on the
  // first stage, which reports it even without a clipped parameter.
  auto isObserved = [&](Operation &op) {
    auto id = op.getAttrOfType<StringAttr>(kIdAttr);
    return stage == 0 && id && id.getValue() == kGradientNormId;
  };
  Block *body = function.builder().getInsertionBlock();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*body)))
    if (isOpTriviallyDead(&op) && !isObserved(op))
      op.erase();
  return success();
}

} // namespace tbc
