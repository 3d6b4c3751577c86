//===- Evaluate.h - The meaning of an op, by its reference kernel ----------===//
//
// The bridge from MLIR ops, types and attributes to the MLIR-free reference kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_EVALUATE_H
#define TBC_IR_EVALUATE_H

#include "runtime/kernels/Kernel.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

#include <optional>

namespace tbc {

/// Returns the tensor type of kernels for `type`; nullopt for a dynamic shape or an element type
/// outside tbc.
std::optional<kernels::TensorType> toKernelType(mlir::Type type);

/// Returns the attributes of `op` for kernels, without those with a dialect prefix (tbc.id ...). A
/// dense value becomes doubles or ints, one element for a splat. Error: an attribute of a kind
/// unknown to kernels, at the op.
mlir::FailureOr<kernels::Attrs> toKernelAttrs(mlir::Operation *op);

/// Returns the results of `op` on `operands`, by the reference kernel of the op's name.
///
/// Errors, at the op:
/// - there is no kernel of this name, e.g. for collectives, which are not local;
/// - the kernel refuses the operands;
/// - its results differ from the op's result types.
mlir::FailureOr<llvm::SmallVector<kernels::Tensor>>
evaluateOp(mlir::Operation *op, llvm::ArrayRef<kernels::Tensor> operands,
           const kernels::KernelContext &context);

/// Returns the result of `op` if it is a single i64 that depends on no data: all ops that it is
/// computed from have operands that are results of such ops, or none. Null otherwise. Integers are
/// the same in all arithmetics. Example: reduce_max of iota of 50,304 elements is 50,303.
mlir::DenseElementsAttr dataIndependentInteger(mlir::Operation *op);

} // namespace tbc

#endif // TBC_IR_EVALUATE_H
