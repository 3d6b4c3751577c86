//===- AttachLoss.h - From a model to the forward of its training step -----===//

#ifndef TBC_PASSES_LOSS_ATTACHLOSS_H
#define TBC_PASSES_LOSS_ATTACHLOSS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"

#include <optional>
#include <string>

namespace tbc {

/// On the factor_size of the loss: it counts the samples of the global batch. Every other
/// factor_size (batch statistics) counts the samples of one execution of @train.
inline constexpr llvm::StringLiteral kGlobalBatchAttr = "tbc.global_batch";

enum class LossKind {
  /// -log softmax(logits)[label], labels int64 of the shape of the logits without their last dim.
  CrossEntropy,
  /// (output - label)^2, labels of the shape of the output.
  MeanSquaredError,
  /// The output itself is the loss of each sample (or of each of its parts), or a scalar: the mean
  /// of these losses, weighted or not.
  Output,
};

/// The inverse of "cross-entropy", "mse", "output"; nullopt for any other text.
std::optional<LossKind> parseLossKind(llvm::StringRef text);

struct LossOptions {
  LossKind kind = LossKind::CrossEntropy;
  /// The name of the model's output to take; empty: its first.
  std::string output;
  /// For cross-entropy: the part of the target spread over all classes, 0 to 1, and the ignored
  /// label.
  double labelSmoothing = 0;
  int64_t ignoreIndex = -100;
  /// Samples in the global batch; 0: those of the types (one micro-batch).
  int64_t samples = 0;
};

/// Adds @train, a clone of @model that returns (loss, [count], new states ..). It has the argument
/// "labels" behind the others, except for Output. Every op has an id and the phase `fwd`.
///
/// loss = sum over the elements of the micro-batch / factor_size{elements per sample, samples}, in
/// f32 or f64. So the losses of all micro-batches and data ranks add up to the mean over the global
/// batch. Example: 2 micro-batches of 2 samples with losses 1, 2 and 3, 6 return 3/4 and 9/4,
/// together 3.
///
/// If elements may count differently (for cross-entropy, ignored labels count 0), @train also
/// returns the count of the micro-batch, f32, role `count`. factor_size then stands for the sum of
/// all counts, and the update corrects it.
///
/// Errors: no @model; an unknown output; an output with a batch dim that cannot be told from the
/// others.
mlir::LogicalResult attachLoss(mlir::ModuleOp module, const LossOptions &options);

/// Sets the samples of every factor_size of @train or @update. The loss becomes a mean over
/// `globalBatch` samples, and one execution has `samples` of them on all data ranks together. Types
/// are not changed.
void setBatchSizes(mlir::func::FuncOp function, int64_t globalBatch, int64_t samples);

} // namespace tbc

#endif // TBC_PASSES_LOSS_ATTACHLOSS_H
