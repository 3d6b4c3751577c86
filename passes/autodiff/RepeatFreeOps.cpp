//===- RepeatFreeOps.cpp - Forward ops without cost, in the backward -------===//

#include "passes/autodiff/RepeatFreeOps.h"

#include "ir/Elementwise.h"
#include "ir/Roles.h"
#include "passes/OpIds.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tbc {

static constexpr llvm::StringLiteral kCloneSuffix = ".rc";

llvm::SetVector<Value> residuals(func::FuncOp train) {
  llvm::DenseSet<Value> used;
  Block &block = train.getBody().front();
  for (Operation &op : block.without_terminator())
    if (isBackward(&op))
      used.insert(op.operand_begin(), op.operand_end());
  llvm::SetVector<Value> result;
  for (BlockArgument arg : block.getArguments())
    if (used.contains(arg))
      result.insert(arg);
  for (Operation &op : block.without_terminator())
    if (!isBackward(&op))
      for (Value value : op.getResults())
        if (used.contains(value))
          result.insert(value);
  return result;
}

/// Clones `op` for backward ops that use its results, if there are any.
static void repeat(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers())
    if (isBackward(user) && (!first || user->isBeforeInBlock(first)))
      first = user;
  if (!first)
    return;
  OpBuilder builder(first);
  Operation *clone = builder.clone(*op);
  clone->setAttr(kForwardIdAttr, op->getAttr(kIdAttr));
  clone->setAttr(kIdAttr, builder.getStringAttr(getId(op) + kCloneSuffix));
  setPhase(clone, reshard::Phase::Backward);
  for (auto [from, to] : llvm::zip(op->getResults(), clone->getResults()))
    from.replaceUsesWithIf(to, [](OpOperand &use) { return isBackward(use.getOwner()); });
}

/// Returns true if `op` has no cost, or only makes a wider copy of its operand.
static bool isFree(Operation *op) {
  if (auto cast = dyn_cast<CastOp>(op))
    return tensorType(cast.getInput()).getElementTypeBitWidth() <
           tensorType(cast.getResult()).getElementTypeBitWidth();
  auto cost = dyn_cast<CostOpInterface>(op);
  return cost && cost.getKernelClass() == KernelClass::None;
}

void repeatFreeOps(func::FuncOp train) {
  SmallVector<Operation *> freeOps;
  llvm::DenseSet<Operation *> generators;
  for (Operation &op : train.getBody().front().without_terminator()) {
    if (isBackward(&op))
      continue;
    bool isGenerator = llvm::all_of(op.getOperands(), [&](Value operand) {
      return operand.getDefiningOp() && generators.contains(operand.getDefiningOp());
    });
    if (isGenerator)
      generators.insert(&op);
    if (isGenerator || isFree(&op))
      freeOps.push_back(&op);
  }
  // In reverse order: clones that use an op's results exist by then.
  for (Operation *op : llvm::reverse(freeOps))
    repeat(op);
}

} // namespace tbc
