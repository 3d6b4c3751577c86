//===- Plan.h - A plan as attributes of the IR -----------------------------===//
//
// The attributes of Plan.td, the names under which they stand, and the one place where they are
// made from, and into, the types of planner/reshard.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_PLAN_H
#define TBC_IR_PLAN_H

#include "ir/Tbc.h"
#include "planner/reshard/Graph.h"

#include "mlir/IR/BuiltinOps.h"

#define GET_ATTRDEF_CLASSES
#include "ir/PlanAttributes.h.inc"

namespace tbc {

/// On the module: the mesh, the samples of a micro-batch over all data ranks, those of a step, the
/// micro-batches of a step.
inline constexpr llvm::StringLiteral kMeshAttr = "tbc.mesh";
inline constexpr llvm::StringLiteral kBatchAttr = "tbc.batch";
inline constexpr llvm::StringLiteral kGlobalBatchSizeAttr = "tbc.global_batch_size";
inline constexpr llvm::StringLiteral kMicroBatchesAttr = "tbc.micro_batches";
/// On the module, only with a pipeline: the schedule by its name in runtime/schedule, and the stage
/// of each chunk where that is not its number.
inline constexpr llvm::StringLiteral kScheduleAttr = "tbc.schedule";
inline constexpr llvm::StringLiteral kChunkStageAttr = "tbc.chunk_stage";
/// On the module: the bytes of a gradient bucket, and how many gathers ahead parameters are
/// gathered.
inline constexpr llvm::StringLiteral kBucketBytesAttr = "tbc.bucket_bytes";
inline constexpr llvm::StringLiteral kPrefetchAttr = "tbc.prefetch";
/// On the module, as units: ranks of "cp" hold their sequence in zigzag order; optimizer states are
/// on the host.
inline constexpr llvm::StringLiteral kZigzagAttr = "tbc.zigzag";
inline constexpr llvm::StringLiteral kOffloadStatesAttr = "tbc.offload_states";
/// On arguments of @train: a ParameterPlanAttr.
inline constexpr llvm::StringLiteral kParameterPlanAttr = "tbc.parameter_plan";
/// On ops of @train: the axes on its loops; on the first forward op of a chunk, the chunk's number;
/// as units, that the backward executes it again, and that its residuals are on the host.
inline constexpr llvm::StringLiteral kStrategyAttr = "tbc.strategy";
inline constexpr llvm::StringLiteral kChunkBeginAttr = "tbc.chunk_begin";
inline constexpr llvm::StringLiteral kRecomputeAttr = "tbc.recompute";
inline constexpr llvm::StringLiteral kOffloadAttr = "tbc.offload";
/// Written by tbc-derive-shardings. On arguments of @train the sharding in which the tensor is
/// held; on ops an array with the sharding of each result, as kept (its home).
inline constexpr llvm::StringLiteral kShardingAttr = "tbc.sharding";
/// On ops: the shardings of results as produced, and those in which operands are wanted, where one
/// of them is not the home: a collective is between them.
inline constexpr llvm::StringLiteral kProducedAttr = "tbc.produced";
inline constexpr llvm::StringLiteral kWantedAttr = "tbc.wanted";
/// On arguments that are parameters: the shardings in which ops use them, in which their gradient
/// is accumulated, and of their optimizer state.
inline constexpr llvm::StringLiteral kUsedAttr = "tbc.used";
inline constexpr llvm::StringLiteral kGradientAttr = "tbc.gradient";
inline constexpr llvm::StringLiteral kStateShardingAttr = "tbc.state";

/// Whether `name` is that of an attribute of ops that a plan leaves there: one of those above.
bool isPlanAttribute(llvm::StringRef name);

/// `mesh` and its parts. The functions that take an attribute fail with an error at `loc` that
/// names the axis where the mesh has no such axis or part.
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
/// Of a tensor of rank `rank`.
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
