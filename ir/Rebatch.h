//===- Rebatch.h - The same function at another batch size ------------------===//

#ifndef TBC_IR_REBATCH_H
#define TBC_IR_REBATCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Changes the size of the batch factor b throughout `func` to `batch`, and no other size.
///
/// Errors: the inputs' batch dims are not one factor of their own; a constant with a batch dim is
/// not a splat (at the op).
mlir::LogicalResult rebatch(mlir::func::FuncOp func, int64_t batch);

} // namespace tbc

#endif // TBC_IR_REBATCH_H
