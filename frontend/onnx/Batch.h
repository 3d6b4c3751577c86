//===- Batch.h - From the marker to the batch size asked for ---------------===//

#ifndef TBC_FRONTEND_ONNX_BATCH_H
#define TBC_FRONTEND_ONNX_BATCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc::frontend {

/// Replaces the factor `marker` in every size of `function` by `batch`. ImportError if a tensor
/// becomes too large.
void bindBatch(mlir::func::FuncOp function, int64_t marker, int64_t batch);

/// The first op of `a` that differs from its counterpart in `b` (operands, attributes or result
/// types); null if the functions are the same.
///
/// A function imported at two markers and bound to one batch is the same both times exactly if
/// nothing in it was computed from the batch size.
mlir::Operation *firstDifference(mlir::func::FuncOp a, mlir::func::FuncOp b);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_BATCH_H
