//===- FrozenParameters.h - Which parameters are trained -------------------===//

#ifndef TBC_PASSES_AUTODIFF_FROZENPARAMETERS_H
#define TBC_PASSES_AUTODIFF_FROZENPARAMETERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace tbc {

/// Per argument of `train`: whether it is a float parameter that one of the globs matches, by its
/// tbc.name or its tbc.display_name. Errors: a malformed glob, one that matches no parameter;
/// `flag` says where it came from.
mlir::FailureOr<llvm::SmallVector<bool>>
matchParameters(mlir::func::FuncOp train, llvm::ArrayRef<std::string> globs, llvm::StringRef flag);

/// Per argument of `train`: whether it is a parameter (role "param", float) that no glob freezes. A
/// glob matches the argument's tbc.name or its tbc.display_name. Errors: a malformed glob, one that
/// matches no parameter.
mlir::FailureOr<llvm::SmallVector<bool>> findTrained(mlir::func::FuncOp train,
                                                     llvm::ArrayRef<std::string> freeze);

} // namespace tbc

#endif // TBC_PASSES_AUTODIFF_FROZENPARAMETERS_H
