//===- RepeatFreeOps.h - Forward ops that cost nothing, in the backward ----===//

#ifndef TBC_PASSES_AUTODIFF_REPEATFREEOPS_H
#define TBC_PASSES_AUTODIFF_REPEATFREEOPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/SetVector.h"

namespace tbc {

/// The values that the backward ops of `train` use and that are made by forward ops, or are
/// arguments, in the order of their making.
llvm::SetVector<mlir::Value> residuals(mlir::func::FuncOp train);

/// Repeats the forward ops that cost nothing in the backward phase, as far as that uses their
/// results: views and broadcasts (kernel class "none"), casts to a wider type, and ops that depend
/// on no argument. Keeping their results would be a copy for no gain. The clone of op "i" has the
/// id "i.rc", the phase "bwd", "i" in tbc.forward, and stands right before its first use there.
/// These clones are part of the step, whatever the plan; a plan's recomputation is tbc-recompute.
void repeatFreeOps(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_AUTODIFF_REPEATFREEOPS_H
