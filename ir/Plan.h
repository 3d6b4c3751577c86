//===- Plan.h - A plan as attributes of the IR -----------------------------===//
//
// The attributes of Plan.td, their names, and the conversions from and to planner/reshard.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_PLAN_H
#define TBC_IR_PLAN_H

#include "ir/Attributes.h"

#include "mlir/IR/BuiltinOps.h"

namespace tbc {

/// On the module: the mesh, the samples of a micro-batch over all data ranks, the samples of a
/// step, the micro-batches of a step. Example: 2 data ranks with 4 samples each and 3 micro-batches
/// have `tbc.batch` 8 and `tbc.global_batch_size` 24.
inline constexpr llvm::StringLiteral kMeshAttr = "tbc.mesh";
inline constexpr llvm::StringLiteral kBatchAttr = "tbc.batch";
inline constexpr llvm::StringLiteral kGlobalBatchSizeAttr = "tbc.global_batch_size";
inline constexpr llvm::StringLiteral kMicroBatchesAttr = "tbc.micro_batches";
/// On the module, only with a pipeline: the schedule by its name in runtime/schedule, and the stage
/// of each chunk if it differs from the chunk's number.
inline constexpr llvm::StringLiteral kScheduleAttr = "tbc.schedule";
inline constexpr llvm::StringLiteral kChunkStageAttr = "tbc.chunk_stage";
/// On the module: the bytes of a gradient bucket, and the number of gathers of parameters issued
/// ahead of their use.
inline constexpr llvm::StringLiteral kBucketBytesAttr = "tbc.bucket_bytes";
inline constexpr llvm::StringLiteral kGatherBytesAttr = "tbc.gather_bytes";
inline constexpr llvm::StringLiteral kPrefetchAttr = "tbc.prefetch";
/// On the module, as units: ranks of "cp" hold their sequence in zigzag order; optimizer states are
/// on the host.
inline constexpr llvm::StringLiteral kZigzagAttr = "tbc.zigzag";
inline constexpr llvm::StringLiteral kOffloadStatesAttr = "tbc.offload_states";
/// On arguments of @train: a ParameterPlanAttr.
inline constexpr llvm::StringLiteral kParameterPlanAttr = "tbc.parameter_plan";
/// On ops of @train:
/// - `tbc.strategy`: the axes on its loops;
/// - `tbc.chunk_begin`: the chunk's number, on its first forward op;
/// - `tbc.recompute`, a unit: the backward recomputes the op;
/// - `tbc.offload`, a unit: its residuals are offloaded.
inline constexpr llvm::StringLiteral kStrategyAttr = "tbc.strategy";
inline constexpr llvm::StringLiteral kChunkBeginAttr = "tbc.chunk_begin";
inline constexpr llvm::StringLiteral kRecomputeAttr = "tbc.recompute";
inline constexpr llvm::StringLiteral kOffloadAttr = "tbc.offload";
/// Written by tbc-derive-shardings. On arguments of @train: the sharding of the stored tensor. On
/// ops: an array with the sharding of each result as kept (its home).
inline constexpr llvm::StringLiteral kShardingAttr = "tbc.sharding";
/// On ops: the shardings of results as produced, and of operands as wanted. They stand only if one
/// of them differs from the home; a collective is then between them.
inline constexpr llvm::StringLiteral kProducedAttr = "tbc.produced";
inline constexpr llvm::StringLiteral kWantedAttr = "tbc.wanted";
/// On arguments that are parameters: the shardings of their uses in ops, of their accumulated
/// gradient, and of their optimizer state.
inline constexpr llvm::StringLiteral kUsedAttr = "tbc.used";
inline constexpr llvm::StringLiteral kGradientAttr = "tbc.gradient";
inline constexpr llvm::StringLiteral kStateShardingAttr = "tbc.state";

/// Returns true if `name` is one of the attributes above that a plan puts on ops.
bool isPlanAttribute(llvm::StringRef name);

/// Conversions of `mesh` and its parts. From an attribute they fail with an error at `loc` if the
/// mesh lacks a named axis or part.
MeshAttr toAttribute(mlir::MLIRContext *context, const reshard::Mesh &mesh);
reshard::Mesh toMesh(MeshAttr mesh);
mlir::ArrayAttr toAttribute(mlir::MLIRContext *context, const reshard::Mesh &mesh,
                            const std::vector<reshard::AxisRef> &axes);
mlir::FailureOr<std::vector<reshard::AxisRef>> toAxes(mlir::Location loc, const reshard::Mesh &mesh,
                                                      mlir::ArrayAttr axes);
StrategyAttr toAttribute(mlir::MLIRContext *context, const reshard::Mesh &mesh,
                         const reshard::OpStrategy &strategy);
mlir::FailureOr<reshard::OpStrategy> toStrategy(mlir::Location loc, const reshard::Mesh &mesh,
                                                StrategyAttr strategy);
/// For a tensor of rank `rank`.
ShardingAttr toAttribute(mlir::MLIRContext *context, const reshard::Mesh &mesh,
                         const reshard::Sharding &sharding, int64_t rank);
mlir::FailureOr<reshard::Sharding> toSharding(mlir::Location loc, const reshard::Mesh &mesh,
                                              ShardingAttr sharding);
ParameterPlanAttr toAttribute(mlir::MLIRContext *context, const reshard::Mesh &mesh,
                              const reshard::ParameterPlan &plan);
mlir::FailureOr<reshard::ParameterPlan>
toParameterPlan(mlir::Location loc, const reshard::Mesh &mesh, ParameterPlanAttr plan);

} // namespace tbc

#endif // TBC_IR_PLAN_H
