//===- Adagrad.cpp - Row-wise steps of tables of embeddings -----------------===//

#include "passes/optimizer/Adagrad.h"

#include "ir/Optimizer.h"
#include "ir/Roles.h"

#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace tbc {

/// Whether `op` looks up rows of operand `number`: a result has its columns but not its rows.
static bool looksUpRows(Operation *op, unsigned number) {
  auto cost = dyn_cast<CostOpInterface>(op);
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!cost || !shardable || cost.getKernelClass() != KernelClass::Gather ||
      tensorType(op->getOperand(number)).getRank() != 2)
    return false;
  const FactorRule rule = shardable.getFactorRule();
  llvm::SmallSet<unsigned, 8> inResult;
  for (const auto &result : rule.results)
    for (const FactorRule::Dim &dim : result)
      for (const FactorRule::Product &product : dim)
        inResult.insert(product.begin(), product.end());
  auto isKept = [&](const FactorRule::Dim &dim) {
    return llvm::any_of(dim, [&](const FactorRule::Product &product) {
      return llvm::any_of(product, [&](unsigned loop) { return inResult.contains(loop); });
    });
  };
  return !isKept(rule.operands[number][0]) && isKept(rule.operands[number][1]);
}

/// Whether forward reads `value`, a parameter or a cast of one, and only by lookups of rows.
static bool isTable(Value value) {
  bool isRead = false;
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (phaseOf(op) != reshard::Phase::Forward || isa<func::ReturnOp>(op))
      continue;
    const bool isLookup =
        isa<CastOp>(op) ? isTable(op->getResult(0)) : looksUpRows(op, use.getOperandNumber());
    if (!isLookup)
      return false;
    isRead = true;
  }
  return isRead;
}

SmallVector<bool> findTables(func::FuncOp train) {
  SmallVector<bool> tables;
  for (BlockArgument arg : train.getArguments())
    tables.push_back(argumentRole(train, arg.getArgNumber()) == TensorRole::Parameter &&
                     isTable(arg));
  return tables;
}

RowwiseStep buildRowwiseStep(Formula &f, Value gradient, Value sums, double epsilon,
                             function_ref<Value(Value old, Value replacement)> taken) {
  auto gathered = f.builder.create<GatherMatricesOp>(f.loc, gradient);
  gathered.setByRows(true);
  auto number = [&](double x) { return f.builder.getF64FloatAttr(x); };
  const double columns = double(tensorType(gradient).getDimSize(1));
  Value squared = f.wide(gathered);
  Value ofRows = f.sum(f.mul(squared, squared), {1});
  Value next = f.make<WeightedSumOp>(sums, ofRows, number(1), number(1 / columns));
  Value newSums = taken(sums, next);
  Value wide = f.wide(gathered);
  Value direction = f.make<DivideByRootOp>(wide, f.repeat(next, wide, {1}), number(epsilon));
  return {f.make<ShardMatricesOp>(direction), newSums};
}

} // namespace tbc
