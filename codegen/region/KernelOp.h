//===- KernelOp.h - Interface of ops for code generation --------------------===//

#ifndef TBC_CODEGEN_REGION_KERNELOP_H
#define TBC_CODEGEN_REGION_KERNELOP_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OpDefinition.h"

namespace tbc::region {

/// How a reduction combines several elements into one.
enum class Combiner { None, Sum, Max };

} // namespace tbc::region

#include "codegen/region/KernelOpInterface.h.inc"

namespace tbc::region {

/// Loads the dialects of kernels and attaches KernelOpInterface to the ops of tbc, once. The tbc
/// dialect must be loaded.
void prepareContext(mlir::MLIRContext &context);

/// One per family of ops, in codegen/cpu/ops.
void attachElementwiseKernels(mlir::MLIRContext &context);
void attachMovementKernels(mlir::MLIRContext &context);
void attachOptimizerKernels(mlir::MLIRContext &context);
void attachRandomKernels(mlir::MLIRContext &context);
void attachReductionKernels(mlir::MLIRContext &context);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_KERNELOP_H
