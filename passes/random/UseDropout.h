//===- UseDropout.h - Dropout in training form -----------------------------===//

#ifndef TBC_PASSES_RANDOM_USEDROPOUT_H
#define TBC_PASSES_RANDOM_USEDROPOUT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// The names of the two inputs of dropout, with the roles Sample and Step: the number of every
/// sample in the global batch, and the number of the step, from 1. Both are i64.
inline constexpr llvm::StringLiteral kSampleName = "tbc.sample";
inline constexpr llvm::StringLiteral kStepName = "tbc.step";

/// Makes every dropout a dropout_train and every random_uniform a random_uniform_train, which
/// number their elements by sample and position in the sample. Gives `model` the two inputs if it
/// has any. A tensor without the batch has the same mask or numbers for all samples. Error: a
/// dropout over a tensor with a batch that cannot be told from its other dims.
mlir::LogicalResult useDropout(mlir::func::FuncOp model, int64_t seed);

/// Takes every dropout out; random numbers stay.
void removeDropout(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_RANDOM_USEDROPOUT_H
