//===- RaiseComposites.h - Finds composites in decomposed exports ----------===//

#ifndef TBC_PASSES_RAISE_RAISECOMPOSITES_H
#define TBC_PASSES_RAISE_RAISECOMPOSITES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Replaces ops of `function` that compute a composite by that composite, for the mnemonics in
/// `ops` (empty: all). Unknown forms stay as they are; an attention that stays gets a remark. A
/// composite has the id and location of the op that it replaces.
mlir::LogicalResult raiseComposites(mlir::func::FuncOp function,
                                    llvm::ArrayRef<std::string> ops = {});

} // namespace tbc

#endif // TBC_PASSES_RAISE_RAISECOMPOSITES_H
