//===- Recompute.h - Recomputation: forward ops cloned into the backward ---===//

#ifndef TBC_PASSES_PLAN_RECOMPUTE_H
#define TBC_PASSES_PLAN_RECOMPUTE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/StringSet.h"

namespace tbc {

/// Recomputes (activation checkpointing) the forward ops of `train` marked `tbc.recompute`, and
/// those with these ids: a backward op of their chunk that reads their results reads those of a
/// clone instead. The clone of op "i" has the id "i.recompute", the phase "bwd", "i" in tbc.forward
/// and the mark tbc.recomputed. Clones stand where reshard::recomputeOrder puts them, as in the
/// planner's graph. The marks `tbc.recompute` are removed; results do not change by a bit.
///
/// Errors: an id that no forward op has; as of extractStructure.
mlir::LogicalResult applyRecompute(mlir::func::FuncOp train, const llvm::StringSet<> &ids = {});

} // namespace tbc

#endif // TBC_PASSES_PLAN_RECOMPUTE_H
