//===- PerRank.h - From the partitioner to code generation -----------------===//

#ifndef TBC_IR_PERRANK_H
#define TBC_IR_PERRANK_H

#include "ir/Roles.h"
#include "planner/reshard/Sharding.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace tbc {

/// A tensor outside the blocks, and its sharding on the mesh.
struct PartitionedTensor {
  std::string name;
  TensorRole role = TensorRole::Input; // Parameter, State, OptimizerState, Gradient or Input
  reshard::TensorLayout layout;
  reshard::Sharding sharding;
  mlir::Type elementType;
  /// The factor of the tokens of a sample, and the number of ranks of its zigzag order
  /// (runtime/abi/Piece.h); 1: the original order.
  reshard::FactorId sequenceFactor = -1;
  int64_t zigzag = 1;
  /// For an optimizer state that starts as a copy of a parameter (master weights): the parameter's
  /// name.
  std::string copyOf;
  /// The initial value of all elements of an optimizer state otherwise.
  double initial = 0;
};

/// On a collective of the per-rank IR: {bucket, message}. Neighbours with equal values are one
/// collective of several tensors.
inline constexpr llvm::StringLiteral kBucketAttr = "tbc.bucket";

/// On an op of the per-rank IR that is a part of a nest of loops: the number of its kernel
/// (reshard::planKernels). Neighbours with equal numbers are one kernel.
inline constexpr llvm::StringLiteral kKernelAttr = "tbc.kernel";

/// On a module of per-rank IR: the tensors outside the blocks, each with its name, role, whole type
/// and sharding. It is for people; code generation takes PartitionedStep::tensors.
inline constexpr llvm::StringLiteral kTensorsAttr = "tbc.tensors";

/// Per-rank IR: for each chunk c the functions @fwd_c, @bwd_c and @wgt_c (empty unless the schedule
/// splits the backward), for each stage s @update_s, with local shapes and collectives. Arguments
/// and results carry `tbc.role` and `tbc.name`:
///   argument   param state input residual recv acc opt_state lr loss_acc
///   result     residual send acc state loss_acc param opt_state loss
/// loss_acc and loss are the "loss" of a step and, if elements may count differently, its "count".
/// A recv or send has the chunk of its peer in `tbc.peer`. Residuals are named by value and
/// sharding.
struct PartitionedStep {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<PartitionedTensor> tensors;
};

} // namespace tbc

#endif // TBC_IR_PERRANK_H
