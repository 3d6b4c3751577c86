//===- MergeHeads.cpp - Heads stay merged with their columns ----------------===//

#include "passes/layout/MergeHeads.h"

#include "ir/Movement.h"
#include "ir/Tbc.h"
#include "passes/Passes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_MERGEHEADSPASS
#include "passes/Passes.h.inc"

/// Whether `apart` is `merged`, of rank 3, with its last dim split in two.
static bool isSplitOfLast(Value merged, Value apart) {
  ArrayRef<int64_t> from = tensorType(merged).getShape(), to = tensorType(apart).getShape();
  return from.size() == 3 && to.size() == 4 && from.drop_back() == to.drop_back(2);
}

static bool canReadMerged(OpOperand &use) {
  auto reader = dyn_cast<MergeableOpInterface>(use.getOwner());
  return reader && reader.canReadMerged(use.getOperandNumber());
}

static bool hasDimsOfOperand(OpOperand &use) {
  return isa<TransposableOpInterface>(use.getOwner());
}

/// Moves a split behind its only reader, whose result has the dims of its operand.
static void moveBehindReader(ReshapeOp split) {
  OpOperand &use = *split->getUses().begin();
  Operation *reader = use.getOwner();
  Value input = split.getInput(), result = reader->getResult(0);
  auto apart = tensorType(result);
  cast<MergeableOpInterface>(reader).readMerged(use.getOperandNumber());
  use.set(input);
  result.setType(RankedTensorType::get(tensorType(input).getShape(), apart.getElementType()));
  split->moveAfter(reader);
  split.getInputMutable().assign(result);
  split.getResult().setType(apart);
  result.replaceAllUsesExcept(split, split);
}

/// Makes the readers of a split read its input.
static void foldIntoReaders(ReshapeOp split) {
  if (!isSplitOfLast(split.getInput(), split))
    return;
  while (split->hasOneUse() && hasDimsOfOperand(*split->getUses().begin()) &&
         canReadMerged(*split->getUses().begin()))
    moveBehindReader(split);
  auto mayFold = [](OpOperand &use) { return canReadMerged(use) && !hasDimsOfOperand(use); };
  if (!llvm::all_of(split->getUses(), mayFold))
    return;
  for (OpOperand &use : llvm::make_early_inc_range(split->getUses())) {
    cast<MergeableOpInterface>(use.getOwner()).readMerged(use.getOperandNumber());
    use.set(split.getInput());
  }
  split.erase();
}

/// Makes the producer of a merge of its last dims write the merge, if nothing else reads it.
static void foldIntoProducer(ReshapeOp merge) {
  auto input = dyn_cast<OpResult>(merge.getInput());
  auto producer = input ? dyn_cast<MergeableOpInterface>(input.getOwner()) : nullptr;
  if (!producer || !input.hasOneUse() || !isSplitOfLast(merge, input) ||
      !producer.canMakeMerged(input.getResultNumber()))
    return;
  producer.makeMerged(input.getResultNumber());
  input.setType(merge.getType());
  merge.replaceAllUsesWith(Value(input));
  merge.erase();
}

void mergeHeads(func::FuncOp model) {
  for (ReshapeOp reshape : SmallVector<ReshapeOp>(model.getOps<ReshapeOp>()))
    foldIntoReaders(reshape);
  for (ReshapeOp reshape : llvm::make_early_inc_range(model.getOps<ReshapeOp>()))
    foldIntoProducer(reshape);
}

namespace {
struct MergeHeads : impl::MergeHeadsPassBase<MergeHeads> {
  void runOnOperation() override { mergeHeads(getOperation()); }
};
} // namespace

} // namespace tbc
