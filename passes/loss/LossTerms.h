//===- LossTerms.h - A scalar loss as a sum of means -----------------------===//

#ifndef TBC_PASSES_LOSS_LOSSTERMS_H
#define TBC_PASSES_LOSS_LOSSTERMS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace tbc {

/// coefficient * sum(elements) / (count * samples of the global batch).
struct LossTerm {
  mlir::Value elements;
  /// A scalar that depends on no sample; null: 1.
  mlir::Value coefficient;
  /// Elements per sample, as the model's divisor counts them; 0: a sum that is not divided.
  /// Example: sum(x) / batch of x[batch, 24] has count 1, and mean(x) has 24.
  int64_t count = 1;
};

/// Terms of a loss, and a scalar that depends on no sample, such as a weight's norm (null: 0).
struct LossSum {
  llvm::SmallVector<LossTerm> terms;
  mlir::Value constant;
};

/// Returns `scalar` as a sum of means and sums over samples, or nullopt if it is another function
/// of sums over the batch. Scalars for coefficients are built at the builder's insertion point.
///
/// Example: mean(a) + 0.1 * sum(b) / batch - norm(w) has the terms {a}, {b, coefficient 0.1, count
/// 1} and the constant -norm(w). Sums of shares of these terms over ranks and micro-batches are the
/// loss of the whole batch, but sum(a) / sum(b) is no such sum.
std::optional<LossSum> lossTerms(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value scalar);

/// Returns `value`, a tensor of one element, as a scalar, and what it is computed from too: ops are
/// built again at the builder's insertion point. Example: a mean with its dims kept.
mlir::Value scalarOf(mlir::OpBuilder &builder, mlir::Value value);

/// Elements of a mean with weights: factor * sum(elements) / (sum(weights) + epsilon).
struct WeightedMean {
  mlir::Value elements, weights;
  double epsilon = 0, factor = 1;
};

/// Returns `scalar` as such a mean; nullopt if it is none. max(sum(weights), c) is the sum itself
/// for integer weights and c <= 1: a sum of 0 makes no step. Example: -sum(x * m) / sum(m) has the
/// factor -1.
std::optional<WeightedMean> weightedMean(mlir::Value scalar);

/// Returns the input of a sum over all dims, also of one below casts; null for another value.
mlir::Value summedUp(mlir::Value value);

} // namespace tbc

#endif // TBC_PASSES_LOSS_LOSSTERMS_H
