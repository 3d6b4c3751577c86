//===- Adafactor.h - Steps with factored second moments ---------------------===//

#ifndef TBC_PASSES_OPTIMIZER_ADAFACTOR_H
#define TBC_PASSES_OPTIMIZER_ADAFACTOR_H

#include "ir/Formula.h"

#include <optional>
#include <string>

namespace tbc {

/// Defaults are those of torch.optim.Adafactor.
struct AdafactorOptions {
  /// A step's weight of the new squares is step^beta2Decay.
  double beta2Decay = -0.8;
  /// The smallest root of a second moment; nullopt: the machine epsilon of the element type in
  /// which the optimizer computes, 2^-23 of f32.
  std::optional<double> epsilon;
  /// The smallest size of a parameter, the root of the mean of its squares.
  double epsilon2 = 1e-3;
  /// The largest size of a direction.
  double clipThreshold = 1;
};

/// A state of a parameter: the end of its name, and its shape.
struct FactoredState {
  std::string name;
  llvm::SmallVector<int64_t> shape;
};

/// Returns the states of a parameter, which every rank with a part of it holds whole. A matrix, the
/// last two dims of a tensor, has moments of rows and of columns; a vector has one per element.
/// Example: 8 x 3 x 5 has "row_var" of 8 x 3 and "col_var" of 8 x 5; 5 has "variance" of 5.
llvm::SmallVector<FactoredState, 2> factoredStates(mlir::RankedTensorType parameter);

/// A direction on the state's shard, and the new states.
struct FactoredStep {
  mlir::Value direction;
  llvm::SmallVector<mlir::Value, 2> states;
};

/// Builds tbc.gather_matrices of `gradient`, the new `states` (those of factoredStates), the
/// gradient divided by the root of its second moment, and tbc.shard_matrices. With g the gradient
/// and w = step^beta2Decay, of a matrix:
///
///     row' = row + w (mean over columns of g^2 - row)
///     col' = col + w (mean over rows of g^2 - col)
///     v    = row' col' / max(mean of row', epsilon)
///     u    = g / sqrt(max(v, epsilon^2))
///
/// Of a vector v is its variance, v + w (g^2 - v). Means count the elements of `shape`, the sizes
/// of the parameter without padding; the gradient of padding is 0. `taken` returns the new state,
/// or the old one if the step is skipped; u follows from the new ones. Source: Shazeer and Stern,
/// "Adafactor", arXiv 1804.04235, algorithms 4 and 5.
FactoredStep
buildFactoredStep(Formula &f, mlir::Value gradient, llvm::ArrayRef<int64_t> shape,
                  llvm::ArrayRef<mlir::Value> states, mlir::Value step,
                  const AdafactorOptions &options,
                  llvm::function_ref<mlir::Value(mlir::Value old, mlir::Value replacement)> taken);

/// Builds the step of `value` along `direction`: tbc.square_totals of both, tbc.adafactor_step.
/// `shape`: as above.
mlir::Value buildAdafactorStep(Formula &f, mlir::Value value, mlir::Value direction,
                               llvm::ArrayRef<int64_t> shape, mlir::Value rate, mlir::Value step,
                               double weightDecay, const AdafactorOptions &options);

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_ADAFACTOR_H
