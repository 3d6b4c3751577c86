//===- BuildUpdate.h - The optimizer's step --------------------------------===//

#ifndef TBC_PASSES_OPTIMIZER_BUILDUPDATE_H
#define TBC_PASSES_OPTIMIZER_BUILDUPDATE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"

#include <optional>

namespace tbc {

enum class OptimizerKind { Sgd, AdamW };

/// The inverse of "sgd" and "adamw"; nothing for any other text.
std::optional<OptimizerKind> parseOptimizerKind(llvm::StringRef text);

/// Defaults are PyTorch's for AdamW; SGD uses momentum, nesterov and weightDecay.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weightDecay = 0.01;
};

/// Adds @update(params .., grads .., optimizer states .., lr, step) -> (params .., optimizer states
/// ..), for the parameters that @train returns gradients of, in that order.
///
/// States of parameter P, role "opt_state", start at 0: "P.m" (SGD's momentum buffer, Adam's first
/// moment), "P.v" (second moment). For a parameter narrower than f32 also "P.master", marked by
/// tbc.master, its f32 copy: the optimizer steps on it and the parameter is cast from it. `lr` is a
/// f32 scalar, `step` an i64 scalar that counts from 1. Momentum 0 needs no buffer. Errors: no
/// @train, or one that returns no gradients.
mlir::LogicalResult buildUpdateFunction(mlir::ModuleOp module, const OptimizerOptions &options);

} // namespace tbc

#endif // TBC_PASSES_OPTIMIZER_BUILDUPDATE_H
