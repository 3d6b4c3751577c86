//===- LocalBlock.cpp - Builds one function of per-rank IR -----------------===//

#include "passes/partition/LocalBlock.h"

#include "ir/Elementwise.h"
#include "ir/Evaluate.h"
#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

using reshard::GraphOp;
using reshard::GraphValue;
using reshard::Phase;
using reshard::Sharding;
using reshard::ValueRole;

std::string residualName(const reshard::Graph &graph, const reshard::Mesh &mesh, int value,
                         const Sharding &sharding) {
  return graph.values[value].name + " " + reshard::toString(mesh, sharding);
}

static std::string blockName(Phase phase, int chunk, bool isLast) {
  const char *prefix = isLast                     ? "last_bwd_"
                       : phase == Phase::Forward  ? "fwd_"
                       : phase == Phase::Backward ? "bwd_"
                                                  : "wgt_";
  return prefix + std::to_string(chunk);
}

LocalBlock::LocalBlock(const PartitionInput &input, ModuleOp module, Phase phase, int chunk,
                       bool isLast)
    : in(input), phase(phase), chunk(chunk), isLast(isLast),
      function(module, blockName(phase, chunk, isLast)) {
  for (const reshard::Reshard &reshard : in.derivation.reshards)
    if (reshard.phase == phase && reshard.chunk == chunk && !reshard.perStep) {
      reshards[reshard.value].push_back(&reshard);
      size_t number = &reshard - in.derivation.reshards.data();
      if (int before = in.overlap.issuedBefore[number]; before >= 0)
        gathersBefore.insert({before, &reshard});
    }
  if (isLast)
    findLastReductions();
  for (const reshard::Residual &residual : in.derivation.residuals)
    if (residual.isOnHost && residual.chunk == chunk && residual.phase == phase)
      onHost[{residual.value, residual.sharding}] = Value();
  for (auto [p, parts] : llvm::enumerate(in.derivation.gradientParts))
    for (const reshard::GradientParts::Part &part : parts.parts)
      if (phase != Phase::Forward && part.chunk == chunk && phaseOf(part.value) == phase)
        gradientsOf.insert({part.value, int(p)});
}

RankedTensorType LocalBlock::localType(int value, const Sharding &sharding) const {
  // The element type is that of the IR value; a recomputed op has the values of its original.
  int producer = in.graph.values[value].producer;
  Value original;
  if (producer < 0)
    original = in.step.values[value];
  else
    original = templateOf(producer)->getResult(in.graph.values[value].producerResult);
  return RankedTensorType::get(reshard::localShape(in.graph.values[value].layout, sharding),
                               tensorType(original).getElementType());
}

Location LocalBlock::locOf(int value) const {
  int producer = in.graph.values[value].producer;
  return producer < 0 ? in.train.getLoc() : templateOf(producer)->getLoc();
}

/// Returns the phase that computes a gradient, or a part of one.
Phase LocalBlock::phaseOf(int value) const {
  int producer = in.graph.values[value].producer;
  return producer < 0 ? Phase::Backward : in.graph.ops[producer].phase;
}

/// Returns the op of @train for graph op `op`, or for its original if it is a clone.
Operation *LocalBlock::templateOf(int op) const {
  const GraphOp &graphOp = in.graph.ops[op];
  auto it = in.opById.find(graphOp.id);
  if (it != in.opById.end())
    return it->second;
  return in.opById.lookup(in.graph.ops[graphOp.forwardOp].id);
}

LogicalResult LocalBlock::build() {
  receive();
  if (auto kernels = in.kernels.find({chunk, phase}); kernels != in.kernels.end())
    for (const reshard::Kernel &kernel : kernels->second)
      if (mlir::failed(emitKernel(kernel)))
        return failure();
  // Gradients without a producer in this block.
  while (!gradientsOf.empty())
    emitGradients(gradientsOf.begin()->first);
  emitResults();
  function.finish();
  // Operands of ops that became constants may have no other users.
  for (Operation *op : llvm::reverse(generators))
    if (op->use_empty())
      op->erase();
  return failure(failed);
}

/// Receives values from chunks of other stages, in the order of their sends.
void LocalBlock::receive() {
  for (const reshard::Transfer &transfer : in.derivation.transfers)
    if (transfer.toChunk == chunk && transfer.phase == phase)
      remember(transfer.value, transfer.sharding,
               function.addArgument(localType(transfer.value, transfer.sharding),
                                    TensorRole::Receive, in.graph.values[transfer.value].name,
                                    transfer.fromChunk));
}

/// Emits the ops of a kernel one after the other: first everything that they read from outside, and
/// last what happens to their results.
LogicalResult LocalBlock::emitKernel(const reshard::Kernel &emitted) {
  const std::vector<int> &kernel = emitted.ops;
  for (int index : kernel) {
    auto [first, last] = gathersBefore.equal_range(index);
    for (auto gather = first; gather != last; ++gather)
      if (!get(gather->second->value, gather->second->to))
        return failure();
  }
  std::map<int, Value> inside; // the results of the kernel's ops
  std::vector<SmallVector<Value>> operands;
  auto isMade = [&](int value) {
    return llvm::is_contained(kernel, in.graph.values[value].producer);
  };
  for (int index : kernel) {
    operands.emplace_back();
    for (auto [i, value] : llvm::enumerate(in.graph.ops[index].operands)) {
      operands.back().push_back(isMade(value) ? Value() : operandOf(index, i));
      if (!isMade(value) && !operands.back().back())
        return failure();
    }
  }
  if (emitted.isPacked)
    emitPacked(kernel, operands, inside);
  else if (mlir::failed(emitOps(emitted, operands, inside)))
    return failure();
  ++numKernels;
  const bool isGenerated = in.graph.ops[kernel.back()].generator;
  for (int index : kernel)
    for (int result : in.graph.ops[index].results) {
      if (!inside.count(result) || emitted.cutsInPlace(in.graph.ops[size_t(index)]))
        continue; // a streamed op has remembered it, or it is part of a packed tensor
      if (!in.graph.ops[index].generator)
        remember(result, in.derivation.raw[result], inside.at(result));
      else if (!in.repeatedOps[size_t(index)] || (isGenerated && index == kernel.back()))
        generated[result] = inside.at(result);
    }
  for (int index : kernel)
    for (int result : in.graph.ops[index].results)
      emitGradients(result);
  return success();
}

/// Emits the ops of a kernel one after the other. `operands`, by op, are null where the kernel
/// makes them; `inside` gets the results of its ops.
LogicalResult LocalBlock::emitOps(const reshard::Kernel &kernel,
                                  MutableArrayRef<SmallVector<Value>> operands,
                                  std::map<int, Value> &inside) {
  for (auto [index, values] : llvm::zip_equal(kernel.ops, operands)) {
    const GraphOp &op = in.graph.ops[index];
    for (auto [i, value] : llvm::enumerate(op.operands))
      if (!values[i])
        values[i] = inside.at(value);
    if (!op.generator &&
        reshard::streamedBlocks(in.graph, index, in.assignment.strategies[index]) > 1) {
      if (mlir::failed(emitStreamed(index, values))) // a kernel of its own
        return failure();
      continue;
    }
    Operation *local = emitLocal(index, values);
    if (kernel.isNest)
      local->setAttr(kKernelAttr, function.builder().getI64IntegerAttr(numKernels));
    for (auto [i, result] : llvm::enumerate(op.results))
      inside[result] = local->getResult(i);
  }
  return success();
}

/// Emits one op in place of those of a packed kernel: it reads the tensor that the first op cuts.
void LocalBlock::emitPacked(const std::vector<int> &kernel, ArrayRef<SmallVector<Value>> operands,
                            std::map<int, Value> &inside) {
  constexpr size_t numParts = reshard::ColumnUse::numParts;
  const int taker = kernel[numParts];
  SmallVector<Value> reads = operands[numParts];
  const auto first = reads.begin() + in.graph.ops[size_t(taker)].columns.first;
  *first = operands.front().front();
  reads.erase(first + 1, first + numParts);
  const std::vector<int> &results = in.graph.ops[size_t(kernel.back())].results;
  SmallVector<Type> types;
  for (int result : results)
    types.push_back(localType(result, in.derivation.raw[result]));
  Operation *packed =
      cast<PackableOpInterface>(templateOf(taker)).buildPacked(function.builder(), reads, types);
  for (NamedAttribute attr : templateOf(taker)->getDiscardableAttrs())
    if (!isPlanAttribute(attr.getName()))
      packed->setAttr(attr.getName(), attr.getValue());
  packed->setAttr(kIdAttr, function.builder().getStringAttr(in.graph.ops[size_t(taker)].id));
  resize(packed, taker);
  for (auto [i, result] : llvm::enumerate(results))
    inside[result] = packed->getResult(i);
}

/// Returns what an op reads from outside of its kernel.
Value LocalBlock::operandOf(int index, int operand) {
  const GraphOp &op = in.graph.ops[index];
  int value = op.operands[operand];
  if (!op.generator)
    return get(value, in.derivation.operands[index][operand].sharding);
  if (mlir::failed(emitGenerator(in.graph.values[value].producer)))
    return {};
  return generated.at(value);
}

/// Emits a data-independent op of no kernel of planKernels. It runs in each block that needs it.
LogicalResult LocalBlock::emitGenerator(int index) {
  const GraphOp &op = in.graph.ops[index];
  if (generated.count(op.results[0]))
    return success();
  SmallVector<Value> operands;
  for (int value : op.operands) {
    if (mlir::failed(emitGenerator(in.graph.values[value].producer)))
      return failure();
    operands.push_back(generated.at(value));
  }
  Operation *local = emitLocal(index, operands);
  for (auto [i, result] : llvm::enumerate(op.results))
    generated[result] = local->getResult(i);
  return success();
}

Operation *LocalBlock::emitLocal(int index, ArrayRef<Value> operands) {
  const GraphOp &op = in.graph.ops[index];
  Operation *original = templateOf(index);
  OperationState state(original->getLoc(), original->getName());
  state.addOperands(operands);
  for (int result : op.results)
    state.addTypes(localType(result, in.derivation.raw[result]));
  for (NamedAttribute attr : original->getAttrs())
    if (!isPlanAttribute(attr.getName()))
      state.addAttribute(attr.getName(), attr.getValue());
  Operation *local = function.builder().create(state);
  local->setAttr(kIdAttr, function.builder().getStringAttr(op.id));
  resize(local, index);
  return op.generator ? foldInteger(local) : local;
}

/// A single integer that depends on no data is computed here, and becomes a constant.
Operation *LocalBlock::foldInteger(Operation *local) {
  if (DenseElementsAttr known = dataIndependentInteger(local); known && !isa<ConstantOp>(local)) {
    OpBuilder builder(local);
    auto constant = builder.create<ConstantOp>(local->getLoc(), local->getResultTypes()[0], known);
    constant->setAttr(kIdAttr, local->getAttr(kIdAttr));
    local->erase();
    local = constant;
  }
  generators.push_back(local);
  return local;
}

/// Sets the sizes in the attributes of `local` to the local sizes.
void LocalBlock::resize(Operation *local, int index) {
  Operation *original = templateOf(index);
  const GraphOp &op = in.graph.ops[index];
  const auto &ruleLoops = in.step.ruleLoops[in.step.opIndex.lookup(original)];
  const reshard::OpStrategy &strategy = in.derivation.strategyOf(in.assignment, index);
  auto localSize = [&](unsigned ruleLoop, const reshard::Factor &factor) {
    for (auto [i, loop] : llvm::enumerate(op.loops))
      if (loop.factor == factor.id && llvm::is_contained(ruleLoops[i], ruleLoop)) {
        auto axes = strategy.loopAxes.find(i);
        return loop.size / (axes == strategy.loopAxes.end() ? 1 : reshard::groupSize(axes->second));
      }
    return factor.size;
  };
  SmallVector<int64_t> sizes;
  auto shardable = cast<ShardableOpInterface>(local);
  unsigned numLoops = cast<ShardableOpInterface>(original).getFactorRule().loops.size();
  for (unsigned loop = 0; loop < numLoops; ++loop) {
    int64_t size = 0;
    for (const reshard::Segment &segment : in.analysis.loopLayout(original, loop).segments) {
      int64_t product = 1;
      for (const reshard::Factor &factor : segment.factors)
        product *= localSize(loop, factor);
      size += product;
    }
    sizes.push_back(size);
  }
  shardable.resizeLoops(sizes);
}

/// Records `made` as `value` in this sharding. An offloaded value leaves at once, so its copy can
/// take as long as the block.
Value LocalBlock::remember(int value, const Sharding &sharding, Value made) {
  if (auto kept = onHost.find({value, sharding}); kept != onHost.end())
    kept->second = function.offload(made);
  return cache[{value, sharding}] = made;
}

Value LocalBlock::get(int value, const Sharding &sharding) {
  auto it = cache.find({value, sharding});
  if (it != cache.end())
    return it->second;
  for (const reshard::Reshard *reshard : reshards[value]) {
    if (reshard->to != sharding || reshard->from == sharding)
      continue;
    if (int bucket = in.overlap.bucket(in.derivation, *reshard);
        bucket >= 0 && reshard->where == reshard::Where::ParameterUse)
      return succeeded(emitBucketOf(bucket)) ? cache.at({value, sharding}) : Value();
    Value from = get(value, reshard->from);
    if (!from)
      return {};
    Value result = emitReshard(function.builder(), locOf(value), from, *reshard,
                               in.graph.values[value].layout, in.assignment.mesh);
    return remember(value, sharding, result);
  }
  Value result = source(value, sharding);
  if (result)
    remember(value, sharding, result);
  else if (!failed)
    emitError(locOf(value)) << "the derivation does not provide value \""
                            << in.graph.values[value].name << "\" as "
                            << reshard::toString(in.assignment.mesh, sharding) << " in "
                            << blockName(phase, chunk, isLast);
  failed |= !result;
  return result;
}

/// Returns the role of a value of the step from outside its blocks.
static TensorRole tensorRole(ValueRole role) {
  switch (role) {
  case ValueRole::Parameter:
    return TensorRole::Parameter;
  case ValueRole::State:
    return TensorRole::State;
  case ValueRole::OptimizerState:
    return TensorRole::OptimizerState;
  case ValueRole::Activation:
  case ValueRole::Input:
  case ValueRole::Loss:
    return TensorRole::Input;
  }
  llvm_unreachable("no role");
}

/// Returns a value from outside the block, or from a data-independent op, which every block runs
/// for itself.
Value LocalBlock::source(int value, const Sharding &sharding) {
  const GraphValue &graphValue = in.graph.values[value];
  RankedTensorType type = localType(value, sharding);
  int holder = reshard::holderOf(in.graph, in.assignment, value, chunk);
  for (const reshard::Residual &residual : in.derivation.residuals)
    if (residual.value == value && residual.chunk == holder && residual.sharding == sharding &&
        (residual.chunk != chunk || residual.phase != phase))
      return residual.isOnHost
                 ? function.fetchArgument(type, TensorRole::Residual, nameOf(residual))
                 : function.addArgument(type, TensorRole::Residual, nameOf(residual));
  if (graphValue.producer < 0) {
    return function.addArgument(type, tensorRole(graphValue.role), graphValue.name);
  }
  if (!in.graph.ops[graphValue.producer].generator || sharding != in.derivation.raw[value] ||
      mlir::failed(emitGenerator(graphValue.producer)))
    return {};
  return inSequenceOrder(value, generated.at(value));
}

/// Returns the name of a residual's slot, which all chunks of a stage share.
std::string LocalBlock::nameOf(const reshard::Residual &residual) const {
  std::string name = residualName(in.graph, in.assignment.mesh, residual.value, residual.sharding);
  if (in.assignment.numChunks() > in.assignment.numStages)
    name += " of chunk " + std::to_string(residual.chunk);
  return name;
}

void LocalBlock::emitResults() {
  for (const reshard::Residual &residual : in.derivation.residuals)
    if (residual.chunk == chunk && residual.phase == phase)
      if (Value value = get(residual.value, residual.sharding)) {
        if (residual.isOnHost)
          function.addHostResult(onHost.at({residual.value, residual.sharding}),
                                 TensorRole::Residual, nameOf(residual));
        else
          function.addResult(value, TensorRole::Residual, nameOf(residual));
      }
  if (phase == Phase::Forward)
    emitForwardResults();
  for (const reshard::Transfer &transfer : in.derivation.transfers)
    if (transfer.fromChunk == chunk && transfer.phase == phase)
      if (Value value = get(transfer.value, transfer.sharding))
        function.addResult(value, TensorRole::Send, in.graph.values[transfer.value].name,
                           transfer.toChunk);
}

void LocalBlock::emitForwardResults() {
  auto isHere = [&](int value) {
    int producer = in.graph.values[value].producer;
    return (producer < 0 ? 0 : in.graph.ops[producer].chunk) == chunk;
  };
  for (auto [state, updated] : in.graph.stateUpdates)
    if (isHere(updated))
      if (Value value = get(updated, in.derivation.home[updated]))
        function.addResult(value, TensorRole::State, in.graph.values[state].name);
  for (auto [total, name] : {std::pair(in.graph.loss, "loss"), std::pair(in.graph.count, "count")})
    if (total >= 0 && isHere(total))
      if (Value value = get(total, in.derivation.home[total]))
        function.addResult(value, TensorRole::LossAccumulator, name);
}

/// Adds `value`, just computed, to the accumulators of its gradients. Doing so at once ends its
/// lifetime early, above all that of the gradient before its reduction.
void LocalBlock::emitGradients(int value) {
  auto [first, last] = gradientsOf.equal_range(value);
  for (auto it = first; it != last; ++it) {
    int p = it->second;
    if (const reshard::Reshard *member = bucketed(value, in.derivation.gradient[p]))
      waiting[in.overlap.bucket(in.derivation, *member)][member].push_back(p);
    else
      addGradient(value, p);
  }
  gradientsOf.erase(first, last);
  emitFullBuckets();
}

void LocalBlock::addGradient(int value, int parameter) {
  Value part = get(value, in.derivation.gradient[parameter]);
  if (!part)
    return;
  // Accumulated by the runtime: in f32 where the gradient is narrower (docs/precision.md).
  if (lastReductions.count(parameter))
    completeGradient(part, parameter);
  else
    function.addResult(part, TensorRole::GradientAccumulator,
                       in.graph.values[in.graph.parameters[parameter].value].name);
}

/// Returns the bucketed reshard of `value` to `sharding`, or null.
const reshard::Reshard *LocalBlock::bucketed(int value, const Sharding &sharding) {
  for (const reshard::Reshard *reshard : reshards[value])
    if (reshard->to == sharding && in.overlap.bucket(in.derivation, *reshard) >= 0)
      return reshard;
  return nullptr;
}

/// Emits the members of a bucket, which are at hand.
LogicalResult LocalBlock::emitBucketOf(int bucket) {
  SmallVector<BucketMember> members;
  for (int index : in.overlap.buckets[bucket].reshards) {
    const reshard::Reshard &reshard = in.derivation.reshards[index];
    Value from = get(reshard.value, reshard.from);
    if (!from)
      return failure();
    members.push_back(
        {locOf(reshard.value), from, &reshard, &in.graph.values[reshard.value].layout});
  }
  emitBucket(function.builder(), members, bucket, in.assignment.mesh);
  for (const BucketMember &member : members)
    remember(member.reshard->value, member.reshard->to, member.value);
  return success();
}

/// Reduces the buckets with all members computed.
void LocalBlock::emitFullBuckets() {
  for (auto it = waiting.begin(); it != waiting.end();) {
    const std::vector<int> &indices = in.overlap.buckets[it->first].reshards;
    if (it->second.size() < indices.size()) {
      ++it;
      continue;
    }
    if (mlir::failed(emitBucketOf(it->first)))
      return;
    for (int index : indices) {
      const reshard::Reshard &reshard = in.derivation.reshards[index];
      for (int parameter : it->second.at(&reshard))
        addGradient(reshard.value, parameter);
    }
    it = waiting.erase(it);
  }
}

} // namespace tbc
