//===- DecomposeComposites.h - Composite ops as simpler ops ----------------===//

#ifndef TBC_PASSES_DECOMPOSE_DECOMPOSECOMPOSITES_H
#define TBC_PASSES_DECOMPOSE_DECOMPOSECOMPOSITES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Replaces every op with a decomposition, for which `wanted` returns true, by that decomposition.
/// An op with id "i" becomes ops with the ids "i.0", "i.1" .. and its phase. Decompositions are
/// decomposed further if wanted. Error: a wanted op cannot be decomposed, at the op.
mlir::LogicalResult decomposeComposites(mlir::func::FuncOp function,
                                        llvm::function_ref<bool(mlir::Operation *)> wanted);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_DECOMPOSECOMPOSITES_H
