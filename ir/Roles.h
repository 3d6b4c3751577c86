//===- Roles.h - Purposes of tensors and phases of ops ---------------------===//
//
// The attributes of Roles.td, their names, and shorthands to read and write them.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_ROLES_H
#define TBC_IR_ROLES_H

#include "ir/Attributes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>

namespace tbc {

/// On arguments and results of functions: a TensorRoleAttr.
inline constexpr llvm::StringLiteral kRoleAttr = "tbc.role";
/// On ops of @train: a PhaseAttr.
inline constexpr llvm::StringLiteral kPhaseAttr = "tbc.phase";

/// Returns the role of an argument or result of `function`; absent if it has none.
std::optional<TensorRole> argumentRole(mlir::func::FuncOp function, unsigned index);
std::optional<TensorRole> resultRole(mlir::func::FuncOp function, unsigned index);

/// Returns `tbc.role` with this role, for the attributes of an argument or result. Example:
/// {namedRole(context, TensorRole::Parameter)} prints as {tbc.role = #tbc.role<param>}.
mlir::NamedAttribute namedRole(mlir::MLIRContext *context, TensorRole role);

/// Returns the phase of `op`; ops without `tbc.phase` belong to the forward.
reshard::Phase phaseOf(mlir::Operation *op);
void setPhase(mlir::Operation *op, reshard::Phase phase);

} // namespace tbc

#endif // TBC_IR_ROLES_H
