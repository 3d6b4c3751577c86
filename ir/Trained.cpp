//===- Trained.cpp - Values that gradients pass through --------------------===//

#include "ir/Gradient.h"
#include "ir/Roles.h"

#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace tbc {

bool isTrained(Value value) {
  llvm::SmallPtrSet<Operation *, 32> seen;
  SmallVector<Value> stack{value};
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    if (!isa<FloatType>(tensorType(next).getElementType()))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
      if (function && argumentRole(function, argument.getArgNumber()) == TensorRole::Parameter)
        return true;
      continue;
    }
    Operation *op = next.getDefiningOp();
    if (!isa<DetachOp>(op) && seen.insert(op).second)
      llvm::append_range(stack, op->getOperands());
  }
  return false;
}

} // namespace tbc
