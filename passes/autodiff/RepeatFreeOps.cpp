//===- RepeatFreeOps.cpp - Forward ops without cost, in the backward -------===//

#include "passes/autodiff/RepeatFreeOps.h"

#include "ir/ColumnUse.h"
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

static bool hasBackwardUser(Operation *op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) { return isBackward(user); });
}

static int64_t bitsOf(Value value) {
  auto type = tensorType(value);
  return type.getNumElements() * int64_t(type.getElementTypeBitWidth());
}

/// Whether `reader` takes all columns of `value`, cut by ops before it, as operands.
static bool takesColumns(Operation *reader, Value value) {
  const ColumnUse use = columnUseOf(reader);
  if (use.kind != ColumnUse::Kind::Takes)
    return false;
  int64_t column = 0;
  for (size_t i = 0; i < ColumnUse::numParts; ++i) {
    Value part = reader->getOperand(unsigned(use.first) + unsigned(i));
    Operation *cut = part.getDefiningOp();
    if (!cut || columnUseOf(cut).kind != ColumnUse::Kind::Cuts || cut->getOperand(0) != value ||
        columnUseOf(cut).first != column)
      return false;
    column += tensorType(part).getShape().back();
  }
  return column == tensorType(value).getShape().back();
}

/// Whether one op of the backward phase is all that reads the parts of `value` there, and takes
/// them as columns. It then reads `value` itself, and no part is cut, unless a plan keeps the parts
/// apart (`cp`).
static bool isTakenAsColumns(Value value) {
  Operation *reader = nullptr;
  for (Operation *cut : value.getUsers())
    for (Operation *user : cut->getUsers()) {
      if (!isBackward(user))
        continue;
      if (reader && user != reader)
        return false;
      reader = user;
    }
  return reader && takesColumns(reader, value);
}

/// Whether `op` cuts columns that nests of loops alone read: they read them where they lie.
static bool servesNests(Operation *op) {
  return columnUseOf(op).kind == ColumnUse::Kind::Cuts &&
         llvm::all_of(op->getUsers(), [](Operation *user) {
           auto cost = dyn_cast<CostOpInterface>(user);
           return cost && cost.isLoopNest();
         });
}

/// Whether saving the results of free ops of `value`, its readers, takes the place of saving
/// `value`. `isRepeatable` says whether an op may be repeated.
static bool isSavedByReaders(Value value, llvm::function_ref<bool(Operation *)> isRepeatable) {
  if (isTakenAsColumns(value))
    return false;
  // Repeating needs no residual if it begins with an argument, which is in memory all the same.
  Value root = value;
  while (root.getDefiningOp() && isRepeatable(root.getDefiningOp()) &&
         root.getDefiningOp()->getNumOperands() == 1)
    root = root.getDefiningOp()->getOperand(0);
  if (!root.getDefiningOp())
    return false;
  int64_t bits = 0;
  bool isCutInPlace = true;
  for (Operation *user : value.getUsers()) {
    if (isBackward(user))
      return false;
    // The result of a free op may become one of the backward phase by a reader that is repeated.
    if (isRepeatable(user) &&
        (hasBackwardUser(user) || llvm::any_of(user->getUsers(), isRepeatable))) {
      bits += bitsOf(user->getResult(0));
      isCutInPlace = isCutInPlace && servesNests(user);
    }
  }
  return isCutInPlace ? bits < bitsOf(value) : bits <= bitsOf(value);
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
  const llvm::DenseSet<Operation *> repeatable(freeOps.begin(), freeOps.end());
  auto isRepeatable = [&](Operation *op) { return repeatable.contains(op); };
  // In reverse order: clones that use an op's results exist by then.
  for (Operation *op : llvm::reverse(freeOps))
    if (generators.contains(op) || op->getNumOperands() != 1 ||
        !isSavedByReaders(op->getOperand(0), isRepeatable))
      repeat(op);
}

} // namespace tbc
