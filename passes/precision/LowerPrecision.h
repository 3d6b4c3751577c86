//===- LowerPrecision.h - bf16 or f16 by policy ----------------------------===//

#ifndef TBC_PASSES_PRECISION_LOWERPRECISION_H
#define TBC_PASSES_PRECISION_LOWERPRECISION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Makes `model` compute in `narrow`, bf16 or f16, where the policy (docs/precision.md) says so.
/// Float parameters (role "param") become narrow; inputs, states and results keep their types. f32
/// alone is narrowed: values that are f64, f16 or bf16 already stay as they are. To be run on
/// @model, before the loss is attached: the backward phase then has the precision of the forward.
/// Errors: an op that has no result types in `narrow`, at the op.
mlir::LogicalResult lowerPrecision(mlir::func::FuncOp model, mlir::FloatType narrow);

} // namespace tbc

#endif // TBC_PASSES_PRECISION_LOWERPRECISION_H
