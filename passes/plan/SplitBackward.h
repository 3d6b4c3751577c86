//===- SplitBackward.h - Splits the backward into dgrad and wgrad ----------===//

#ifndef TBC_PASSES_PLAN_SPLITBACKWARD_H
#define TBC_PASSES_PLAN_SPLITBACKWARD_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Splits backward into dgrad and wgrad: gives the phase `wgt` to backward ops that only gradients
/// of parameters depend on (reshard::weightOps). Error: as for extractStructure.
mlir::LogicalResult splitBackward(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_PLAN_SPLITBACKWARD_H
