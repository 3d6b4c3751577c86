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
  /// Globs of parameter names (initialiser or module path) without a gradient.
  std::vector<std::string> freeze;
  /// The loss scale: gradients are multiplied by it, so that small ones are not lost in f16.
  LossScale lossScale = {};
};

/// Appends the backward phase to @train, which then returns (loss, new states .., gradients ..):
/// one gradient per trained parameter that the loss depends on, in the order of the parameters,
/// with role `grad` and the parameter's name.
///
/// It is a reverse sweep over the forward ops by their vector-Jacobian products, through values
/// that depend on a trained parameter. Backward ops have:
/// - the phase `bwd` and the id "FORWARD.bwd.K";
/// - in tbc.forward the forward op's id;
/// - in tbc.cotangent_of, per result, [id, number] of its forward result if it is a cotangent (or a
///   part of one), else unit.
///
/// Forward ops without cost are repeated in the backward phase (see repeatFreeOps). The backward
/// phase starts from the loss scale: a constant, or the argument kLossScaleName, role `opt_state`.
///
/// Errors: no @train; a glob without a match; an op on the way without a derivative.
mlir::LogicalResult buildTrainFunction(mlir::ModuleOp module, const AutodiffOptions &options = {});

/// Takes back `buildTrainFunction`: erases the backward ops of `train`, its gradients and its loss
/// scale. With the same options, `buildTrainFunction` then builds the same function.
void eraseBackward(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_PASSES_AUTODIFF_DIFFERENTIATE_H
