//===- FrozenParameters.h - Trained and frozen parameters ------------------===//

#ifndef TBC_PASSES_AUTODIFF_FROZENPARAMETERS_H
#define TBC_PASSES_AUTODIFF_FROZENPARAMETERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace tbc {

/// Returns per argument of `train` whether it is a float parameter that matches one of the globs by
/// its tbc.name or its tbc.display_name. Errors: a malformed glob, or one without a match; `flag`
/// names its origin.
mlir::FailureOr<llvm::SmallVector<bool>>
matchParameters(mlir::func::FuncOp train, llvm::ArrayRef<std::string> globs, llvm::StringRef flag);

/// Returns per argument of `train` whether it is a parameter (role `param`, float) that no glob
/// freezes. A glob matches the argument's tbc.name or its tbc.display_name. Example: with freeze =
/// {"embed*"} the argument "embed.weight" is false. Errors: a malformed glob, or one without a
/// match.
mlir::FailureOr<llvm::SmallVector<bool>> findTrained(mlir::func::FuncOp train,
                                                     llvm::ArrayRef<std::string> freeze);

} // namespace tbc

#endif // TBC_PASSES_AUTODIFF_FROZENPARAMETERS_H
