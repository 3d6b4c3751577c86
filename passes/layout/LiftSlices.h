//===- LiftSlices.h - Slices move before splits and transposes -------------===//

#ifndef TBC_PASSES_LAYOUT_LIFTSLICES_H
#define TBC_PASSES_LAYOUT_LIFTSLICES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Moves slices before transposes and splits of dims that only slices of one dim read, so that they
/// cut columns of the tensor as a linear layer made it. Each slice then has the transpose and the
/// split for itself, which foldTransposes and mergeHeads make a part of its reader.
///
/// - A slice of a split dim moves if it cuts the outermost part, which lies together in memory; one
///   of a dim that a reshape leaves as it is moves, too.
/// - A reshape that drops dims of one element moves before a transpose.
///
/// Example: x[b, s, 576] becomes [b, s, 3, 3, 64], its transpose [3, b, 3, s, 64] has q, k and v as
/// rows, and each reads one. They then are the columns 0 to 191, 192 to 383 and 384 to 575 of x.
void liftSlices(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_LAYOUT_LIFTSLICES_H
