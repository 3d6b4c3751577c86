//===- UseBatchStatistics.h - Batch norm in training form ------------------===//

#ifndef TBC_PASSES_DECOMPOSE_USEBATCHSTATISTICS_H
#define TBC_PASSES_DECOMPOSE_USEBATCHSTATISTICS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Turns every batch_norm into batch_norm_train; its running variance is unbiased. Running
/// statistics must be arguments with role `state`. The function returns their new values, with the
/// same role and name, behind its other results. A batch norm used several times updates its
/// statistics one use after the other. Error: statistics that are computed or are no states, at the
/// op.
mlir::LogicalResult useBatchStatistics(mlir::func::FuncOp function);

} // namespace tbc

#endif // TBC_PASSES_DECOMPOSE_USEBATCHSTATISTICS_H
