//===- MatrixUpdate.h - The part of an update on whole matrices -------------===//

#ifndef TBC_IR_MATRIXUPDATE_H
#define TBC_IR_MATRIXUPDATE_H

#include "ir/Optimizer.h"
#include "planner/reshard/Graph.h"

namespace tbc {

/// On arguments of @update with role `opt_state`: a unit; every rank with a part of the parameter's
/// matrices holds the state for all of it. Its first dim numbers matrices if that of the parameter
/// does. Example: the moments of the rows of a matrix.
inline constexpr llvm::StringLiteral kWholeAttr = "tbc.whole";

/// Returns the ops of @update from `gather` to its tbc.shard_matrices, without these two, in order.
/// Empty if there is no tbc.shard_matrices behind it.
llvm::SmallVector<mlir::Operation *> matrixOps(GatherMatricesOp gather);

/// Returns the tbc.gather_matrices in front of `shard`, a tbc.shard_matrices; null if there is
/// none.
GatherMatricesOp gatherOf(mlir::Operation &shard);

/// Whether an op on whole matrices shares a kernel with the op before it. Both are nests of the
/// same loops, and the one before reduces none of them. Example: cast, mul and reduce_sum of one
/// matrix are a kernel; the broadcast of the sum begins the next.
bool joinsPreviousKernel(mlir::Operation *op);

/// Returns the planner's view of `matrixOps(gather)`.
reshard::MatrixUpdate extractMatrixUpdate(GatherMatricesOp gather);

/// Returns the name of the parameter whose update has `gather`: that of the gradient behind it.
llvm::StringRef parameterOf(GatherMatricesOp gather);

} // namespace tbc

#endif // TBC_IR_MATRIXUPDATE_H
