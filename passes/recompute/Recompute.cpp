//===- Recompute.cpp - Forward ops repeated in the backward phase ----------===//

#include "passes/recompute/Recompute.h"

#include "ir/Elementwise.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_RECOMPUTEPASS
#include "passes/Passes.h.inc"

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

/// Clones `op` for the backward ops that use its results, if there are any.
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
  clone->setAttr(kPhaseAttr, builder.getStringAttr("bwd"));
  for (auto [from, to] : llvm::zip(op->getResults(), clone->getResults()))
    from.replaceUsesWithIf(to, [](OpOperand &use) { return isBackward(use.getOwner()); });
}

/// Lets backward ops use the forward ops again that were cloned, and returns their ids.
static llvm::StringSet<> removeClones(func::FuncOp train) {
  llvm::StringMap<Operation *> forwardOps;
  llvm::StringSet<> ids;
  for (Operation &op : llvm::make_early_inc_range(train.getBody().front().without_terminator())) {
    if (!isBackward(&op)) {
      forwardOps[getId(&op)] = &op;
      continue;
    }
    auto forward = op.getAttrOfType<StringAttr>(kForwardIdAttr);
    if (!forward || getId(&op) != (forward.getValue() + kCloneSuffix).str())
      continue;
    Operation *original = forwardOps.lookup(forward.getValue());
    if (!original)
      continue;
    op.replaceAllUsesWith(original);
    op.erase();
    ids.insert(forward.getValue());
  }
  return ids;
}

LogicalResult applyRecompute(func::FuncOp train, const llvm::StringSet<> &ids) {
  // Start afresh, so that a clone of an op that feeds a clone made earlier stands before it.
  llvm::StringSet<> wanted = removeClones(train);
  llvm::StringSet<> unknown = ids;
  SmallVector<Operation *> forwardOps;
  for (Operation &op : train.getBody().front().without_terminator())
    if (!isBackward(&op)) {
      forwardOps.push_back(&op);
      unknown.erase(getId(&op));
    }
  for (StringRef id : ids.keys())
    wanted.insert(id);
  if (!unknown.empty()) {
    SmallVector<StringRef> names(unknown.keys());
    return train.emitError() << "there is no forward op \"" << *llvm::min_element(names)
                             << "\" to recompute";
  }
  // From the last: by then the clones that use an op's results are there.
  for (Operation *op : llvm::reverse(forwardOps))
    if (wanted.contains(getId(op)))
      repeat(op);
  return success();
}

/// Whether `op` costs nothing, or only makes a wider copy of what it reads.
static bool isFree(Operation *op) {
  if (auto cast = dyn_cast<CastOp>(op))
    return tensorType(cast.getInput()).getElementTypeBitWidth() <
           tensorType(cast.getResult()).getElementTypeBitWidth();
  auto cost = dyn_cast<CostOpInterface>(op);
  return cost && cost.getKernelClass() == "none";
}

LogicalResult repeatFreeOps(func::FuncOp train) {
  llvm::StringSet<> ids;
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
      ids.insert(getId(&op));
  }
  return applyRecompute(train, ids);
}

namespace {
struct Recompute : impl::RecomputePassBase<Recompute> {
  using RecomputePassBase::RecomputePassBase;
  void runOnOperation() override {
    llvm::StringSet<> wanted;
    for (const std::string &id : ids)
      wanted.insert(id);
    if (failed(applyRecompute(getOperation(), wanted)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
