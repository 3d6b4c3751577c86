//===- BuildUpdate.h - The optimizer's step --------------------------------===//

#ifndef TBC_PASSES_OPTIMIZER_BUILDUPDATE_H
#define TBC_PASSES_OPTIMIZER_BUILDUPDATE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"
#include "passes/optimizer/LossScale.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc {

enum class OptimizerKind { Sgd, Adam, AdamW };

/// The inverse of "sgd", "adam" and "adamw"; nothing for any other text.
std::optional<OptimizerKind> parseOptimizerKind(llvm::StringRef text);

/// Defaults are PyTorch's for AdamW; SGD uses momentum, nesterov and weightDecay. Adam and SGD add
/// the decay to the gradient.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weightDecay = 0.01;
  /// Globs of parameters (initialiser or module path) whose weights do not decay.
  std::vector<std::string> noDecay;
  /// The largest norm of all gradients together, and of one of their elements; 0: not clipped.
  double clipNorm = 0, clipValue = 0;
  /// That of the backward phase (AutodiffOptions).
  LossScale lossScale;
};

/// The id of the op of @update that computes the norm of all gradients, before they are clipped.
inline constexpr llvm::StringLiteral kGradientNormId = "gradient_norm";

/// Adds @update(params .., grads .., optimizer states .., [loss, [count]], lr) -> (params ..,
/// optimizer states .., [loss, [count]]), for the parameters that @train returns gradients of, in
/// that order.
///
/// Where @train returns a count, gradients are clipped by their norm, or the loss is scaled, what
/// concerns the whole step goes through one tbc.step_total: the sum of squares of all gradients,
/// the count, the number of elements that are not finite, and the loss. Loss and gradients are then
/// multiplied by factor_size / count, and a step that counts nothing changes no parameter and no
/// state. Gradients are divided by the loss scale; a step that has some that are not finite changes
/// no parameter and no state but those of the scale. The norm is clipped as
/// torch.nn.utils.clip_grad_norm_ does: gradients times min(1, clipNorm / (norm + 1e-6)).
///
/// States of parameter P, role "opt_state", start at 0: "P.m" (SGD's momentum buffer, Adam's first
/// moment), "P.v" (second moment). For a parameter narrower than f32 also "P.master", marked by
/// tbc.master, its f32 copy: the optimizer steps on it and the parameter is cast from it. Momentum
/// 0 needs no buffer. States of the whole step, scalars, come last: those of LossScale.h. `lr` is a
/// f32 scalar. Errors: no
/// @train, or one that returns no gradients; a glob that matches no trained parameter; both kinds
/// of clipping.
mlir::LogicalResult buildUpdateFunction(mlir::ModuleOp module, const OptimizerOptions &options);

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_BUILDUPDATE_H
