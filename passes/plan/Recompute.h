//===- Recompute.h - Recomputation: forward ops cloned into the backward ---===//

#ifndef TBC_PASSES_PLAN_RECOMPUTE_H
#define TBC_PASSES_PLAN_RECOMPUTE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/StringSet.h"

namespace tbc {

/// Recomputes (activation checkpointing) the forward ops of `train` marked `tbc.recompute`, and the
/// ops with these ids: backward ops of their chunk read the results of a clone instead. The clone
/// of op "i" has the id "i.recompute", the phase `bwd`, "i" in tbc.forward and the mark
/// tbc.recomputed. reshard::recomputeOrder decides the positions of clones, as in the planner's
/// graph. Removes the marks `tbc.recompute`. Results are equal bit for bit.
///
/// Errors: an id without a forward op; as for extractStructure.
mlir::LogicalResult applyRecompute(mlir::func::FuncOp train, const llvm::StringSet<> &ids = {});

} // namespace tbc

#endif // TBC_PASSES_PLAN_RECOMPUTE_H
