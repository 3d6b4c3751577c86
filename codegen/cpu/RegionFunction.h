//===- RegionFunction.h - Some ops as a function of their own ---------------===//

#ifndef TBC_CODEGEN_CPU_REGIONFUNCTION_H
#define TBC_CODEGEN_CPU_REGIONFUNCTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tbc::cpu {

/// Whether a kernel might do `op`: it has KernelOpInterface or decomposes, and no operand or result
/// is of a type that kernels do not have.
bool mayBeCompiled(mlir::Operation *op);

/// A module with one function, of `operands`, that does copies of `ops` and returns `results`; with
/// composites taken apart until every op has KernelOpInterface. Null (without a diagnostic) if that
/// cannot be.
mlir::OwningOpRef<mlir::ModuleOp> makeRegionFunction(llvm::ArrayRef<mlir::Operation *> ops,
                                                     mlir::ValueRange operands,
                                                     mlir::ValueRange results);

/// The function of such a module.
mlir::func::FuncOp functionOf(mlir::ModuleOp module);

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_REGIONFUNCTION_H
