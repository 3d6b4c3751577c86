//===- AttentionOrder.cpp - The order of the dims of an attention ----------===//
//
// Transposes and reshapes of heads become a part of the op (passes/layout).
//
//===----------------------------------------------------------------------===//

#include "ir/Attention.h"
#include "ir/AttentionSizes.h"

using namespace mlir;

namespace tbc {

using namespace attention;

/// The tensors that have letters, in the order of attention's operands and its first result.
static constexpr StringRef kOrderedTensors = "qkvo";

/// Whether a transpose swaps heads and tokens.
static bool swapsHeadsAndTokens(ArrayRef<int64_t> permutation) {
  return permutation == ArrayRef<int64_t>{0, 2, 1, 3};
}

/// Sets the letter of a tensor in `token_major`, small or capital; 0 leaves it out.
static void setOrder(AttentionOp op, char tensor, char letter) {
  std::string letters;
  for (char other : kOrderedTensors) {
    Order order(op.getTokenMajor(), other);
    char now = order.isMerged ? llvm::toUpper(other) : order.isTokenMajor ? other : '\0';
    if (char set = other == tensor ? letter : now)
      letters += set;
  }
  op.setTokenMajor(letters);
}

static void swapOrder(AttentionOp op, char tensor) {
  setOrder(op, tensor, Order(op.getTokenMajor(), tensor).isTokenMajor ? '\0' : tensor);
}

static bool canMerge(AttentionOp op, char tensor) {
  Order order(op.getTokenMajor(), tensor);
  return order.isTokenMajor && !order.isMerged;
}

static void merge(AttentionOp op, char tensor) {
  const Sizes sizes(op);
  op.setHeads(sizes.h());
  op.setKeyHeads(sizes.hk);
  setOrder(op, tensor, llvm::toUpper(tensor));
}

bool AttentionOp::canAbsorbOperandTranspose(unsigned operand, ArrayRef<int64_t> permutation) {
  return operand < 3 && swapsHeadsAndTokens(permutation);
}

void AttentionOp::absorbOperandTranspose(unsigned operand, ArrayRef<int64_t>) {
  swapOrder(*this, kOrderedTensors[operand]);
}

bool AttentionOp::canAbsorbResultTranspose(unsigned result, ArrayRef<int64_t> permutation) {
  return result == 0 && swapsHeadsAndTokens(permutation);
}

void AttentionOp::absorbResultTranspose(unsigned, ArrayRef<int64_t>) { swapOrder(*this, 'o'); }

bool AttentionOp::canReadMerged(unsigned operand) {
  return operand < 3 && canMerge(*this, kOrderedTensors[operand]);
}

void AttentionOp::readMerged(unsigned operand) { merge(*this, kOrderedTensors[operand]); }

bool AttentionOp::canMakeMerged(unsigned result) { return result == 0 && canMerge(*this, 'o'); }

void AttentionOp::makeMerged(unsigned) { merge(*this, 'o'); }

} // namespace tbc
