//===- Tbc.h - The tbc dialect, its interfaces and attribute names --------===//

#ifndef TBC_IR_TBC_H
#define TBC_IR_TBC_H

#include "ir/BlockStream.h"
#include "ir/FactorRule.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "ir/TbcDialect.h.inc"
#include "ir/TbcInterfaces.h.inc"

namespace tbc {

/// Names of the discardable attributes of ops, function arguments and results.
inline constexpr llvm::StringLiteral kNameAttr = "tbc.name";
/// On ops: the stable id; the chunk; the id of the forward op; as a unit, that tbc-recompute made
/// the op as a clone. Roles and phases are in ir/Roles.h.
inline constexpr llvm::StringLiteral kIdAttr = "tbc.id";
inline constexpr llvm::StringLiteral kChunkAttr = "tbc.chunk";
inline constexpr llvm::StringLiteral kForwardIdAttr = "tbc.forward";
inline constexpr llvm::StringLiteral kRecomputedAttr = "tbc.recomputed";
/// On backward ops: per result [forward op id, result number] of the value it is the cotangent of,
/// or unit.
inline constexpr llvm::StringLiteral kCotangentOfAttr = "tbc.cotangent_of";
/// On arguments of @update with role `opt_state`: the parameter it belongs to (absent for a scalar
/// of the whole step, held by every rank); whether it is that parameter's master copy.
inline constexpr llvm::StringLiteral kParameterAttr = "tbc.parameter";
inline constexpr llvm::StringLiteral kMasterAttr = "tbc.master";
/// On arguments with role `opt_state`: the initial value of all elements, unless it is 0.
inline constexpr llvm::StringLiteral kInitialAttr = "tbc.initial";
/// On arguments and results of per-rank functions with role `recv` and `send`: the other stage.
inline constexpr llvm::StringLiteral kPeerAttr = "tbc.peer";
/// On arguments and results of per-rank functions: a unit; the storage is on the host.
inline constexpr llvm::StringLiteral kOnHostAttr = "tbc.on_host";
/// On function arguments: the number of the batch dim.
inline constexpr llvm::StringLiteral kBatchDimAttr = "tbc.batch_dim";
/// On function arguments: the number of the dim of the tokens of a sample.
inline constexpr llvm::StringLiteral kSequenceDimAttr = "tbc.sequence_dim";

inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

/// Helpers shared by the op families.
FactorRule elementwiseRule(mlir::Operation *op);
double elementwiseFlops(mlir::Operation *op, double perElement);
/// Whether kernels support the element types of all operands and results: all but f64.
bool hasKernelTypes(mlir::Operation *op);
double convolutionFlops(const FactorRule &rule);
FactorRule poolingRule(mlir::Operation *op);
double poolingFlops(mlir::Operation *op, llvm::ArrayRef<int64_t> kernel);
FactorRule optimizerRule(mlir::Operation *op);
/// Returns true if `value` is an argument of the function, perhaps moved around or cast. The user
/// gives its numbers, and they fit tables of any size.
bool isPlainInput(mlir::Value value);

/// A rank-0 constant of the given element type.
mlir::Value scalarConstant(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type elementType,
                           double value);
/// `value` everywhere in a tensor of type `type`: a scalar constant, broadcast.
mlir::Value splat(mlir::OpBuilder &builder, mlir::Location loc, mlir::RankedTensorType type,
                  double value);
/// Broadcasts `input` to `shape`; its dims become the dims `dims` of the result. Example: shape [3,
/// 4] and dims [1] repeat a vector of 4 in 3 rows.
mlir::Value broadcastTo(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value input,
                        llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims);

} // namespace tbc

#endif // TBC_IR_TBC_H
