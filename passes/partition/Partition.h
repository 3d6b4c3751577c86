//===- Partition.h - From the whole step to the functions of each rank =====//

#ifndef TBC_PASSES_PARTITION_PARTITION_H
#define TBC_PASSES_PARTITION_PARTITION_H

#include "ir/PerRank.h"
#include "passes/plan/DeriveShardings.h"
#include "planner/reshard/Kernels.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <vector>

namespace tbc {

/// The step to be partitioned: its functions, and the shardings and collectives of its plan.
struct PartitionInput {
  mutable mlir::func::FuncOp train;
  mutable mlir::func::FuncOp update;
  const FactorAnalysis &analysis; // of train
  const StepGraph &step;          // of train, in the sizes of its types
  const reshard::Graph &graph;    // of step, for the samples of a micro-batch
  const reshard::Assignment &assignment;
  const reshard::Derivation &derivation;
  const reshard::Overlap &overlap; // of it
  const reshard::BlockKernels &kernels;
  const std::vector<bool> &repeatedOps;    // of graph
  const std::vector<bool> &positionValues; // of graph
  /// The number of ranks of the zigzag order of the tokens of a sequence; 1: the original order.
  int64_t zigzag = 1;
  /// The ops of `train` by id.
  llvm::StringMap<mlir::Operation *> opById;
  /// The element types of accumulated gradients, by parameter.
  llvm::StringMap<mlir::Type> accumulatorTypes;
};

/// Returns the per-rank functions of `step` and the tensors that outlive them, in a module of their
/// own. Shardings and tbc.reshard ops on the IR must be the derived ones.
///
/// Errors: as for checkShardings and checkCollectives; an op that cannot be partitioned by its
/// strategy, at the op.
mlir::FailureOr<PartitionedStep> partitionStep(DerivedStep &step);

/// The pass tbc-partition; `tensors` receives the tensors that outlive the functions.
std::unique_ptr<mlir::Pass> createPartitionPass(std::vector<PartitionedTensor> &tensors);

} // namespace tbc

#endif // TBC_PASSES_PARTITION_PARTITION_H
