//===- SplitBackward.h - Splits the backward into dgrad and wgrad ----------===//

#ifndef TBC_PASSES_PLAN_SPLITBACKWARD_H
#define TBC_PASSES_PLAN_SPLITBACKWARD_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Gives the backward ops for which only gradients of parameters wait the phase "wgt"
/// (reshard::weightOps).
/// Error: as of extractStructure.
mlir::LogicalResult splitBackward(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_PLAN_SPLITBACKWARD_H
