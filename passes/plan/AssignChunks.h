//===- AssignChunks.h - The chunk of every op ------------------------------===//

#ifndef TBC_PASSES_PLAN_ASSIGNCHUNKS_H
#define TBC_PASSES_PLAN_ASSIGNCHUNKS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Puts `tbc.chunk` on every op of `train`, from the marks `tbc.chunk_begin` on the first forward
/// op of each chunk, and removes the marks (reshard::setChunks). Without marks the function does
/// not change.
///
/// Error: the marks do not count 0, 1, 2 … in the order of the forward ops, with 0 on the first op.
mlir::LogicalResult assignChunks(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_PLAN_ASSIGNCHUNKS_H
