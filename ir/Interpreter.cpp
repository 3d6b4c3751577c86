//===- Interpreter.cpp - Runs functions of tbc ops -------------------------===//

#include "ir/Interpreter.h"

#include "ir/Evaluate.h"
#include "ir/Host.h"
#include "ir/Reshard.h"
#include "ir/SimulatedCollectives.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace tbc {

namespace {

/// The values of a block with uses to come.
class Environment {
public:
  void define(Value value, RankTensors tensors) {
    if (!value.use_empty())
      live[value] = {std::move(tensors),
                     unsigned(std::distance(value.use_begin(), value.use_end()))};
  }

  /// The tensors of `operand`'s value; drops them from the environment at its last use.
  RankTensors use(OpOperand &operand) {
    auto it = live.find(operand.get());
    assert(it != live.end() && "an operand is defined before its uses");
    if (--it->second.usesLeft > 0)
      return it->second.tensors;
    RankTensors tensors = std::move(it->second.tensors);
    live.erase(it);
    return tensors;
  }

private:
  struct Entry {
    RankTensors tensors;
    unsigned usesLeft = 0;
  };
  llvm::DenseMap<Value, Entry> live;
};

} // namespace

static LogicalResult checkInputs(func::FuncOp function, ArrayRef<RankTensors> inputs,
                                 size_t numRanks) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return function.emitError("only functions of one block can be evaluated");
  if (inputs.size() != function.getNumArguments())
    return function.emitError() << "takes " << function.getNumArguments() << " arguments, got "
                                << inputs.size();
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    std::optional<kernels::TensorType> expected = toKernelType(type);
    if (inputs[i].size() != numRanks)
      return function.emitError() << "argument " << i << " is given for " << inputs[i].size()
                                  << " ranks, not " << numRanks;
    for (const kernels::Tensor &input : inputs[i])
      if (!expected || !input || input.type() != *expected)
        return function.emitError() << "argument " << i << " is of type " << type << ", got "
                                    << (input ? kernels::toString(input.type()) : "nothing");
  }
  return success();
}

/// The results of a local op, rank by rank.
static FailureOr<SmallVector<RankTensors>> evaluateLocally(Operation *op,
                                                           ArrayRef<RankTensors> operands,
                                                           size_t numRanks,
                                                           const kernels::KernelContext &context) {
  SmallVector<RankTensors> results(op->getNumResults());
  for (size_t rank = 0; rank < numRanks; ++rank) {
    SmallVector<kernels::Tensor> local;
    for (const RankTensors &operand : operands)
      local.push_back(operand[rank]);
    FailureOr<SmallVector<kernels::Tensor>> made = evaluateOp(op, local, context);
    if (failed(made))
      return failure();
    for (auto [i, tensor] : llvm::enumerate(*made))
      results[i].push_back(tensor);
  }
  return results;
}

FailureOr<SmallVector<RankTensors>>
evaluateOnRanks(func::FuncOp function, ArrayRef<RankTensors> inputs, const reshard::Mesh &mesh,
                const kernels::KernelContext &context, const Observer &observer) {
  size_t numRanks = 1;
  for (const reshard::MeshAxis &axis : mesh.axes)
    numRanks *= axis.size;
  if (failed(checkInputs(function, inputs, numRanks)))
    return failure();

  Environment environment;
  for (auto [argument, input] : llvm::zip(function.getArguments(), inputs))
    environment.define(argument, input);
  for (Operation &op : function.getBody().front()) {
    SmallVector<RankTensors> operands;
    for (OpOperand &operand : op.getOpOperands())
      operands.push_back(environment.use(operand));
    if (isa<func::ReturnOp>(op))
      return operands;
    FailureOr<SmallVector<RankTensors>> results =
        isa<OffloadOp, FetchOp, ReshardOp>(op)
            ? operands // the same value, elsewhere or otherwise spread
        : isCollective(&op) ? simulateCollective(&op, operands, mesh)
                            : evaluateLocally(&op, operands, numRanks, context);
    if (failed(results))
      return failure();
    if (observer)
      observer(&op, *results);
    for (auto [result, tensors] : llvm::zip(op.getResults(), *results))
      environment.define(result, std::move(tensors));
  }
  return function.emitError("does not return");
}

FailureOr<SmallVector<kernels::Tensor>> evaluateFunction(func::FuncOp function,
                                                         ArrayRef<kernels::Tensor> inputs,
                                                         const kernels::KernelContext &context) {
  SmallVector<RankTensors> rankInputs;
  for (const kernels::Tensor &input : inputs)
    rankInputs.push_back({input});
  FailureOr<SmallVector<RankTensors>> results = evaluateOnRanks(function, rankInputs, {}, context);
  if (failed(results))
    return failure();
  SmallVector<kernels::Tensor> tensors;
  for (RankTensors &result : *results)
    tensors.push_back(std::move(result.front()));
  return tensors;
}

} // namespace tbc
