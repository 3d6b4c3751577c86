//===- Partition.h - From the whole step to what each stage's ranks execute ===//

#ifndef TBC_PASSES_PARTITION_PARTITION_H
#define TBC_PASSES_PARTITION_PARTITION_H

#include "ir/FactorAnalysis.h"
#include "ir/PerRank.h"
#include "ir/StepGraph.h"
#include "planner/reshard/Overlap.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace tbc {

/// The step to be partitioned: the functions as built by the passes and the plan's choices.
struct PartitionInput {
  mutable mlir::func::FuncOp train;
  mutable mlir::func::FuncOp update;
  const FactorAnalysis &analysis; // of train
  const StepGraph &step;          // of train, as extracted
  /// The graph the plan was applied to: `step.graph` rebatched, stages set, re-executed forward ops
  /// cloned into the backward phase. An op that is not in `step` executes what its forward op does.
  const reshard::Graph &graph;
  const reshard::Assignment &assignment;
  const reshard::Derivation &derivation;
  const reshard::Overlap &overlap; // of it
  /// Of how many ranks this is the zigzag order, in which the tokens of a sequence stand; 1: the
  /// original order.
  int64_t zigzag = 1;
  /// The ops of `train` by id.
  llvm::StringMap<mlir::Operation *> opById;
};

mlir::FailureOr<PartitionedStep> partitionStep(const PartitionInput &input);

} // namespace tbc

#endif // TBC_PASSES_PARTITION_PARTITION_H
