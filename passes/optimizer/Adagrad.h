//===- Adagrad.h - Row-wise steps of tables of embeddings -------------------===//

#ifndef TBC_PASSES_OPTIMIZER_ADAGRAD_H
#define TBC_PASSES_OPTIMIZER_ADAGRAD_H

#include "ir/Formula.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Defaults are those of torch.optim.Adagrad.
struct AdagradOptions {
  /// The rate of step t is lr / (1 + (t - 1) rateDecay).
  double rateDecay = 0;
  /// The value of the sums of squares before the first step.
  double initial = 0;
};

/// Returns, by argument of `train`, whether it is a table of embeddings: a parameter of two dims of
/// which every op of the forward, behind casts, looks up rows and keeps columns.
/// Example: the tables of DLRM are; a table of tokens that the head multiplies with is not.
llvm::SmallVector<bool> findTables(mlir::func::FuncOp train);

/// A direction on the state's shard, and the new sum of each row.
struct RowwiseStep {
  mlir::Value direction, sums;
};

/// Builds tbc.gather_matrices of `gradient`, a table [rows, columns] by rows, and
/// tbc.shard_matrices. With g the gradient and `sums` [rows] the state:
///
///     sums' = sums + mean over columns of g^2
///     u     = g / (sqrt(sums') + epsilon)
///
/// `taken` returns the new state, or the old one if the step is skipped.
/// Source: EXACT_ROWWISE_ADAGRAD of FBGEMM, fbgemm_gpu/codegen/genscript/optimizers.py.
RowwiseStep
buildRowwiseStep(Formula &f, mlir::Value gradient, mlir::Value sums, double epsilon,
                 llvm::function_ref<mlir::Value(mlir::Value old, mlir::Value replacement)> taken);

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_ADAGRAD_H
