//===- Differentiate.h - The backward phase of @train ----------------------===//

#ifndef TBC_PASSES_AUTODIFF_DIFFERENTIATE_H
#define TBC_PASSES_AUTODIFF_DIFFERENTIATE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"

#include "passes/optimizer/LossScale.h"

#include <string>
#include <vector>

namespace tbc {

struct AutodiffOptions {
  /// Globs of parameter names (initialiser or module path) that get no gradient.
  std::vector<std::string> freeze;
  /// What gradients are multiplied by, so that small ones are not lost in f16.
  LossScale lossScale = {};
};

/// Appends the backward phase to @train, which then returns (loss, new states .., gradients ..):
/// one gradient per trained parameter that the loss depends on, in the order of the parameters,
/// with role "grad" and the parameter's name.
///
/// A reverse sweep over the forward ops by their vector-Jacobian products, through values that
/// depend on a trained parameter. Backward ops have the phase "bwd", the id "FORWARD.bwd.K", their
/// forward op's id in tbc.forward, and in tbc.cotangent_of, per result, [id, number] of the forward
/// result it is a cotangent (or a part of one) of, or unit. Forward ops that cost nothing are
/// repeated in the backward phase (see repeatFreeOps). The backward phase starts from the loss
/// scale: a constant, or the argument kLossScaleName, role "opt_state". Errors: no @train; a glob
/// that matches no parameter; an op on the way that has no derivative.
mlir::LogicalResult buildTrainFunction(mlir::ModuleOp module, const AutodiffOptions &options = {});

} // namespace tbc

#endif // TBC_PASSES_AUTODIFF_DIFFERENTIATE_H
