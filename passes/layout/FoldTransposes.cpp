//===- FoldTransposes.cpp - Transposes become part of other ops ------------===//

#include "passes/layout/FoldTransposes.h"

#include "ir/Movement.h"
#include "ir/Tbc.h"
#include "passes/Passes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_FOLDTRANSPOSESPASS
#include "passes/Passes.h.inc"

static bool canRead(OpOperand &use, ArrayRef<int64_t> permutation) {
  auto reader = dyn_cast<ReorderableOpInterface>(use.getOwner());
  return reader && reader.canAbsorbOperandTranspose(use.getOperandNumber(), permutation);
}

/// Moves the transpose behind its reader, if it has one that works as well on the input. Returns
/// whether it did.
static bool moveBehindReader(TransposeOp transpose) {
  if (!transpose->hasOneUse())
    return false;
  OpOperand &use = *transpose->getUses().begin();
  auto permutation = transpose.getPermutation();
  auto reader = dyn_cast<TransposableOpInterface>(use.getOwner());
  if (!reader || !reader.canPassTranspose(use.getOperandNumber(), permutation))
    return false;
  reader.passTranspose(use.getOperandNumber(), permutation);
  Value result = reader->getResult(0);
  auto type = result.getType();
  use.set(transpose.getInput());
  result.setType(transpose.getInput().getType());
  transpose->moveAfter(reader);
  transpose.getInputMutable().assign(result);
  transpose.getResult().setType(cast<RankedTensorType>(type));
  result.replaceAllUsesExcept(transpose, transpose);
  return true;
}

/// Makes readers of the transpose read its input. An argument is in memory all the same. Another
/// input would live longer beside its transpose, so all readers must agree.
static void foldIntoReaders(TransposeOp transpose) {
  Value input = transpose.getInput();
  auto permutation = transpose.getPermutation();
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : transpose->getUses())
    if (canRead(use, permutation))
      uses.push_back(&use);
  size_t numUses = std::distance(transpose->use_begin(), transpose->use_end());
  if (!isa<BlockArgument>(input) && uses.size() < numUses)
    return;
  for (OpOperand *use : uses) {
    // An op that reads the transpose twice may not allow the second after the first.
    if (!canRead(*use, permutation))
      continue;
    cast<ReorderableOpInterface>(use->getOwner())
        .absorbOperandTranspose(use->getOperandNumber(), permutation);
    use->set(input);
  }
  if (!uses.empty() && transpose->use_empty())
    transpose.erase();
}

/// Makes the producer of the transpose's input compute the transpose, if nothing else reads it.
static void foldIntoProducer(TransposeOp transpose) {
  auto input = dyn_cast<OpResult>(transpose.getInput());
  auto producer = input ? dyn_cast<ReorderableOpInterface>(input.getOwner()) : nullptr;
  if (!producer || !input.hasOneUse() ||
      !producer.canAbsorbResultTranspose(input.getResultNumber(), transpose.getPermutation()))
    return;
  producer.absorbResultTranspose(input.getResultNumber(), transpose.getPermutation());
  input.setType(transpose.getType());
  transpose.replaceAllUsesWith(input);
  transpose.erase();
}

void foldTransposes(func::FuncOp model) {
  for (TransposeOp transpose : SmallVector<TransposeOp>(model.getOps<TransposeOp>()))
    while (moveBehindReader(transpose)) {
    }
  // Of two transposes in a row, readers absorb the second before the first, and producers the first
  // before the second.
  SmallVector<TransposeOp> transposes(model.getOps<TransposeOp>());
  for (TransposeOp transpose : llvm::reverse(transposes))
    foldIntoReaders(transpose);
  for (TransposeOp transpose : llvm::make_early_inc_range(model.getOps<TransposeOp>()))
    foldIntoProducer(transpose);
}

namespace {
struct FoldTransposes : impl::FoldTransposesPassBase<FoldTransposes> {
  void runOnOperation() override { foldTransposes(getOperation()); }
};
} // namespace

} // namespace tbc
