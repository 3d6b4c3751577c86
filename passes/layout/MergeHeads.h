//===- MergeHeads.h - Heads stay merged with their columns ------------------===//

#ifndef TBC_PASSES_LAYOUT_MERGEHEADS_H
#define TBC_PASSES_LAYOUT_MERGEHEADS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Removes reshapes between [b, s, h * d] and [b, s, h, d] beside ops that address the rows of
/// heads in either (MergeableOpInterface). It runs behind foldTransposes, which brings these ops to
/// the order [b, s, h, d], and before autodiff, so gradients are merged as well.
///
/// - All readers of a split must take the merged tensor, or else it would live beside its copy.
/// - A split moves behind a reader whose result has the dims of its operand
///   (TransposableOpInterface), such as a rotary embedding, and goes on from there.
///
/// Example: the queries of GPT-2 are a slice [b, s, 768] of a matmul's result, read as 12 heads of
/// 64 columns; o is written as [b, s, 768] for the next matmul.
void mergeHeads(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_LAYOUT_MERGEHEADS_H
