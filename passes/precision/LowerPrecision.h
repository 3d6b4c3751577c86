//===- LowerPrecision.h - bf16 by policy -----------------------------------===//

#ifndef TBC_PASSES_PRECISION_LOWERPRECISION_H
#define TBC_PASSES_PRECISION_LOWERPRECISION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"

namespace tbc {

/// Makes `model` compute in bf16 where the policy (docs/precision.md) says so. Float parameters
/// (role "param") become bf16; inputs, states and results keep their types. f32 alone is narrowed:
/// values that are f64, f16 or bf16 already stay as they are. To be run on @model, before the loss
/// is attached: the backward phase then has the precision of the forward. Errors: an op that has no
/// result types in bf16, at the op.
mlir::LogicalResult lowerPrecision(mlir::func::FuncOp model);

} // namespace tbc

#endif // TBC_PASSES_PRECISION_LOWERPRECISION_H
