//===- LowerPrecision.h - bf16 or f16 by policy ----------------------------===//

#ifndef TBC_PASSES_PRECISION_LOWERPRECISION_H
#define TBC_PASSES_PRECISION_LOWERPRECISION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Makes `model` compute in `narrow`, bf16 or f16, by the policy of docs/precision.md. Float
/// parameters (role `param`) become narrow; inputs, states and results keep their types. Only f32
/// is narrowed: values of f64, f16 or bf16 stay as they are. Must run on @model, before the loss is
/// attached, so the backward phase has the precision of the forward. Error: an op without result
/// types in `narrow`, at the op.
mlir::LogicalResult lowerPrecision(mlir::func::FuncOp model, mlir::FloatType narrow);

} // namespace tbc

#endif // TBC_PASSES_PRECISION_LOWERPRECISION_H
