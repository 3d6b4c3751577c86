//===- Evaluate.h - The meaning of an op, by its reference kernel ----------===//
//
// The bridge from MLIR ops, types and attributes to the MLIR-free reference kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_EVALUATE_H
#define TBC_IR_EVALUATE_H

#include "runtime/kernels/Kernel.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

#include <optional>

namespace tbc {

/// The element type that kernels know as `type`, or nothing.
std::optional<kernels::DType> toKernelDType(mlir::Type type);

/// `type` as kernels see it; nothing for a dynamic shape or an element type that no tensor has.
std::optional<kernels::TensorType> toKernelType(mlir::Type type);

/// The attributes of `op` as kernels see them; those with a dialect prefix (tbc.id ...) are left
/// out. A dense value stands as doubles or ints, one element for a splat. Errors: an attribute of a
/// kind that kernels do not know, at the op.
mlir::FailureOr<kernels::Attrs> toKernelAttrs(mlir::Operation *op);

/// The results of `op` on `operands`, by the reference kernel of its name.
/// Errors, at the op: there is no kernel of that name (collectives have none: they are not local),
/// the kernel refuses the operands, or its results are not of the op's result types.
mlir::FailureOr<llvm::SmallVector<kernels::Tensor>>
evaluateOp(mlir::Operation *op, llvm::ArrayRef<kernels::Tensor> operands,
           const kernels::KernelContext &context);

} // namespace tbc

#endif // TBC_IR_EVALUATE_H
