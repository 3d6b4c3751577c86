//===- ColumnUse.h - How kernels use columns of tensors --------------------===//

#ifndef TBC_IR_COLUMNUSE_H
#define TBC_IR_COLUMNUSE_H

#include "ir/Tbc.h"

namespace tbc {

/// Returns how the kernel of `op` uses columns; `Other` for null and for ops without a cost.
inline ColumnUse columnUseOf(mlir::Operation *op) {
  auto cost = llvm::dyn_cast_or_null<CostOpInterface>(op);
  return cost ? cost.getColumnUse() : ColumnUse();
}

} // namespace tbc

#endif // TBC_IR_COLUMNUSE_H
