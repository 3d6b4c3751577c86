//===- LocalMatrices.cpp - Updates that read whole matrices ----------------===//

#include "passes/partition/LocalUpdate.h"

#include "ir/Formula.h"
#include "ir/MatrixUpdate.h"
#include "ir/Optimizer.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

using reshard::Sharding;
using reshard::Where;

bool LocalUpdate::isOnMatrices(Operation &op) const {
  return llvm::any_of(op.getOperands(), [&](Value v) { return matrices.contains(v); });
}

Sharding LocalUpdate::matricesOf(int parameter) const {
  const reshard::GraphValue &value = in.graph.values[in.graph.parameters[parameter].value];
  return reshard::matrixSharding(in.derivation.state[parameter],
                                 in.graph.parameters[parameter].matrices.get(),
                                 int(value.layout.dims.size()));
}

/// Gathers whole matrices from the state's shards. The ops behind it begin a kernel.
LogicalResult LocalUpdate::gatherMatrices(Operation &op, int parameter) {
  Value shard = operandOf(op.getOperand(0));
  if (!shard)
    return failure();
  Value whole = apply(shard, in.graph.parameters[parameter].value, Where::MatrixStep,
                      in.derivation.state[parameter], matricesOf(parameter));
  if (!whole)
    return failure();
  local[op.getResult(0)] = whole;
  // States on the host are fetched before the first kernel, and not between two parts of one.
  for (Operation *inner : matrixOps(cast<GatherMatricesOp>(op)))
    for (Value operand : inner->getOperands())
      if (isa<BlockArgument>(operand))
        operandOf(operand);
  matrices.insert(op.getResult(0));
  lastOfRun = nullptr;
  return success();
}

/// Cuts whole matrices into the state's shards, which moves no data.
void LocalUpdate::shardMatrices(Operation &op, int parameter) {
  const reshard::TensorLayout &layout =
      in.graph.values[in.graph.parameters[parameter].value].layout;
  reshard::Reshard slices;
  slices.from = matricesOf(parameter);
  slices.to = in.derivation.state[parameter];
  slices.steps = reshard::reshard(in.assignment.mesh, layout, slices.from, slices.to);
  assert(llvm::all_of(slices.steps,
                      [](const reshard::Collective &step) {
                        return step.kind == reshard::CollectiveKind::ShardSlice;
                      }) &&
         "a rank with whole matrices has its shard of them");
  local[op.getResult(0)] = emitReshard(function.builder(), op.getLoc(), operandOf(op.getOperand(0)),
                                       slices, layout, in.assignment.mesh);
  lastOfRun = nullptr;
}

/// The sums of the squares of shards, and one all_reduce of them over the axes of the state.
LogicalResult LocalUpdate::emitSquareTotals(Operation &op, int parameter) {
  SmallVector<Value> sums;
  for (Value tensor : op.getOperands()) {
    Value shard = operandOf(tensor);
    if (!shard)
      return failure();
    sums.push_back(Formula{function.builder(), op.getLoc()}.make<SquareSumOp>(ValueRange{shard}));
  }
  lastOfRun = nullptr;
  const int value = in.graph.parameters[parameter].value;
  auto derived = llvm::find_if(in.derivation.reshards, [&](const reshard::Reshard &reshard) {
    return reshard.where == Where::MatrixTotals && reshard.stage == stage && reshard.value == value;
  });
  if (derived != in.derivation.reshards.end()) {
    addTogether(op, sums, *derived);
    return success();
  }
  if (!reshard::usedAxes(in.derivation.state[parameter]).empty())
    return op.emitError("the derivation lacks the all_reduce of the sums over \"")
           << in.graph.values[value].name << "\"";
  for (auto [total, sum] : llvm::zip_equal(op.getResults(), sums))
    local[total] = sum;
  return success();
}

/// Returns the shape on a rank of a value of one parameter's update. A stack of matrices has the
/// rank's part of its first dim, and so do all values made of it.
std::vector<int64_t> LocalUpdate::localResultShape(Value result, int parameter,
                                                   bool onMatrices) const {
  const reshard::TensorLayout &layout =
      in.graph.values[in.graph.parameters[parameter].value].layout;
  if (!onMatrices)
    return reshard::localShape(layout, in.derivation.state[parameter]);
  std::vector<int64_t> shape(tensorType(result).getShape());
  if (!shape.empty() &&
      reshard::isStack(in.graph.parameters[parameter].matrices.get(), int(layout.dims.size())))
    shape.front() = reshard::localShape(layout, matricesOf(parameter)).front();
  return shape;
}

void LocalUpdate::joinMatrixKernel(Operation &op, Operation *clone) {
  if (!cast<CostOpInterface>(clone).isLoopNest())
    return;
  if (isa<GatherMatricesOp>(op.getPrevNode()) || !joinsPreviousKernel(&op))
    ++numKernels;
  clone->setAttr(kKernelAttr, function.builder().getI64IntegerAttr(numKernels));
}

} // namespace tbc
