//===- BuildUpdate.h - The optimizer's step --------------------------------===//

#ifndef TBC_PASSES_OPTIMIZER_BUILDUPDATE_H
#define TBC_PASSES_OPTIMIZER_BUILDUPDATE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"
#include "passes/optimizer/Adafactor.h"
#include "passes/optimizer/Adagrad.h"
#include "passes/optimizer/LossScale.h"
#include "passes/optimizer/Muon.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc {

enum class OptimizerKind { Sgd, Adam, AdamW, Muon, Adafactor, Adagrad, RowwiseAdagrad };

/// The inverse of "sgd", "adam", "adamw", "muon", "adafactor", "adagrad" and
/// "rowwise-adagrad"; nullopt for any other text.
std::optional<OptimizerKind> parseOptimizerKind(llvm::StringRef text);

/// Defaults are PyTorch's for AdamW; SGD uses momentum, nesterov and weightDecay. Adam and SGD add
/// the decay to the gradient. Muon uses `muon` for hidden matrices (findHiddenMatrices), and steps
/// by AdamW on all other parameters. Adafactor uses `adafactor` and weightDecay.
/// Adagrad uses `adagrad`, epsilon and weightDecay. RowwiseAdagrad keeps one sum for each row of a
/// table (findTables), and steps by Adagrad on all other parameters.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weightDecay = 0.01;
  /// Globs of parameters (initialiser or module path) without weight decay.
  std::vector<std::string> noDecay;
  MuonOptions muon;
  AdafactorOptions adafactor;
  AdagradOptions adagrad;
  /// The limits of the norm of all gradients together, and of one element; 0: no clipping.
  double clipNorm = 0, clipValue = 0;
  /// The loss scale of the backward phase (AutodiffOptions).
  LossScale lossScale;
};

/// The id of the op of @update that computes the norm of all gradients, before clipping.
inline constexpr llvm::StringLiteral kGradientNormId = "gradient_norm";

/// Adds @update(params .., grads .., optimizer states .., [loss, [count]], lr) -> (params ..,
/// optimizer states .., [loss, [count]]), for the parameters with a gradient from @train, in the
/// same order.
///
/// Totals. One tbc.step_total has the values of the whole step: the sum of squares of all
/// gradients, the count, the number of elements that are not finite, and the loss. It exists if
/// @train returns a count, gradients are clipped by their norm, or the loss is scaled.
/// - Loss and gradients are multiplied by factor_size / count. A step with a count of 0 changes no
///   parameter and no state.
/// - Gradients are divided by the loss scale. A step with a gradient that is not finite changes
///   only the states of the scale.
/// - The norm is clipped as by torch.nn.utils.clip_grad_norm_: gradients times min(1, clipNorm /
///   (norm + 1e-6)). Example: norm 4 and clipNorm 1 multiply by 0.25.
///
/// States of parameter P, role `opt_state`; they start at 0, or as said:
/// - "P.m": the momentum buffer of SGD (absent for momentum 0) and Muon, Adam's first moment;
/// - "P.v": Adam's second moment;
/// - "P.sum": Adagrad's sum of squares, which starts at adagrad.initial; "P.row_sum", marked by
///   tbc.whole, of the rows of a table;
/// - those of factoredStates for Adafactor, marked by tbc.whole;
/// - "P.master", marked by tbc.master, for a parameter narrower than f32: its f32 copy. The
///   optimizer steps on it and the parameter is cast from it.
///
/// States of the whole step, scalars, come last: those of LossScale.h. `lr` is a f32 scalar.
///
/// Errors: no @train, or one without gradients; a glob that matches no trained parameter; both
/// kinds of clipping; Muon without a hidden matrix.
mlir::LogicalResult buildUpdateFunction(mlir::ModuleOp module, const OptimizerOptions &options);

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_BUILDUPDATE_H
