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

/// Whether `op` cuts the columns of a tensor or joins columns to one (ColumnUse). A nest of loops
/// with other ops reads and writes them in place.
bool movesColumns(mlir::Operation *op);

/// Returns a module with one function that takes `operands`, executes copies of `ops` and returns
/// `results`. Composites are decomposed until every op has KernelOpInterface. Null (without a
/// diagnostic) on failure.
///
/// The columns that an op cuts of an operand are an argument of their own, in place of this op. The
/// parts of a result that joins columns are results of their own. The function's attribute
/// `kArraysAttr` then has the place of each. Example: silu(x[:, :8]) * x[:, 8:] for x[4, 16] is a
/// function of two arguments [4, 8]; both lie in buffer 0, with rows of 16 elements, and begin at
/// elements 0 and 8.
mlir::OwningOpRef<mlir::ModuleOp> makeRegionFunction(llvm::ArrayRef<mlir::Operation *> ops,
                                                     mlir::ValueRange operands,
                                                     mlir::ValueRange results);

/// Returns the function of a module of `makeRegionFunction`.
mlir::func::FuncOp functionOf(mlir::ModuleOp module);

/// Of a function of makeRegionFunction: three numbers (region::Array) for each argument, then for
/// each result. A function without it has a buffer for each, and no columns.
inline constexpr llvm::StringLiteral kArraysAttr = "tbc.arrays";

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_REGIONFUNCTION_H
