//===- RegionFunction.h - Outline ops into a function -----------------------===//

#ifndef TBC_CODEGEN_REGION_REGIONFUNCTION_H
#define TBC_CODEGEN_REGION_REGIONFUNCTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tbc::region {

/// Whether a kernel might do `op`: it has KernelOpInterface or decomposes, and kernels support the
/// types of all its operands and results.
bool mayBeCompiled(mlir::Operation *op);

/// Returns a module with one function that takes `operands`, executes copies of `ops` and returns
/// `results`. Composites are decomposed until every op has KernelOpInterface. Null (without a
/// diagnostic) on failure.
mlir::OwningOpRef<mlir::ModuleOp> makeRegionFunction(llvm::ArrayRef<mlir::Operation *> ops,
                                                     mlir::ValueRange operands,
                                                     mlir::ValueRange results);

/// Returns the function of a module of `makeRegionFunction`.
mlir::func::FuncOp functionOf(mlir::ModuleOp module);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_REGIONFUNCTION_H
