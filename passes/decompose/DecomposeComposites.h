//===- DecomposeComposites.h - Composite ops as simpler ops ----------------===//

#ifndef TBC_PASSES_DECOMPOSE_DECOMPOSECOMPOSITES_H
#define TBC_PASSES_DECOMPOSE_DECOMPOSECOMPOSITES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Replaces every op that has a decomposition and that `wanted` names by it. An op with id "i"
/// becomes ops with the ids "i.0", "i.1" .. and its phase; decompositions are decomposed further if
/// wanted. Errors: an op that is wanted and cannot be decomposed, at the op.
mlir::LogicalResult decomposeComposites(mlir::func::FuncOp function,
                                        llvm::function_ref<bool(mlir::Operation *)> wanted);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_DECOMPOSECOMPOSITES_H
