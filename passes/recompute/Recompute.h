//===- Recompute.h - Forward ops repeated in the backward phase ------------===//

#ifndef TBC_PASSES_RECOMPUTE_RECOMPUTE_H
#define TBC_PASSES_RECOMPUTE_RECOMPUTE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace tbc {

/// The values that the backward ops of `train` use and that are made by forward ops, or are
/// arguments, in the order of their making.
llvm::SetVector<mlir::Value> residuals(mlir::func::FuncOp train);

/// Repeats the forward ops with these ids, as far as the backward phase uses their results, in the
/// backward phase: the clone of the op "i" has the id "i.rc", the phase "bwd", "i" in tbc.forward,
/// and stands right before its first use there. Backward ops use the clones, whose operands are
/// residuals instead. Clones that are there already stay; results do not change by a bit.
/// Errors: an id that no forward op has.
mlir::LogicalResult applyRecompute(mlir::func::FuncOp train, const llvm::StringSet<> &ids);

/// Repeats the forward ops that cost nothing: views and broadcasts (kernel class "none"), casts to
/// a wider type, and whatever depends on no argument. A residual would only be a copy of less or
/// nothing.
mlir::LogicalResult repeatFreeOps(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_RECOMPUTE_RECOMPUTE_H
