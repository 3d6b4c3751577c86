//===- RepeatFreeOps.h - Forward ops without cost, in the backward ---------===//

#ifndef TBC_PASSES_AUTODIFF_REPEATFREEOPS_H
#define TBC_PASSES_AUTODIFF_REPEATFREEOPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/SetVector.h"

namespace tbc {

/// The forward values and arguments used by backward ops of `train`, in the order of their
/// definition.
llvm::SetVector<mlir::Value> residuals(mlir::func::FuncOp train);

/// Repeats forward ops without cost in the backward phase, if their results are used there: views
/// and broadcasts (kernel class "none"), casts to a wider type, and ops that depend on no argument.
/// Saving their results would be a copy without gain.
///
/// Results that take no more memory than their operand are saved in its place, if the backward
/// phase has no other use of it. Example: of a table of scores, half of the rows are read. It is
/// saved whole if its readers there take all of its columns in place (ColumnUse): attention_grad of
/// q, k and v does, and so do nests of loops. Example: a gate and a value are the halves of one
/// matmul's result [b, s, 2 d].
///
/// The clone of op "i" has the id "i.rc", the phase `bwd`, "i" in tbc.forward, and stands right
/// before its first use there. These clones are part of the step under every plan; a plan's
/// recomputation is tbc-recompute.
void repeatFreeOps(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_AUTODIFF_REPEATFREEOPS_H
