//===- StepGraph.h - From @train to the planner's graph --------------------===//

#ifndef TBC_IR_STEPGRAPH_H
#define TBC_IR_STEPGRAPH_H

#include "ir/FactorAnalysis.h"
#include "planner/reshard/Graph.h"

#include "llvm/ADT/DenseMap.h"

namespace tbc {

/// The step for planner and partitioner, with the map back to the IR.
struct StepGraph {
  reshard::Graph graph;
  llvm::DenseMap<mlir::Value, int> valueIndex;
  llvm::DenseMap<mlir::Operation *, int> opIndex;
  std::vector<mlir::Value> values;    // per graph value
  std::vector<mlir::Operation *> ops; // per graph op
  /// Per graph op and loop: the loops of the op's factor rule with this loop as a factor. There are
  /// several if they are segments of one dim, which are sharded together.
  std::vector<std::vector<std::vector<unsigned>>> ruleLoops;
};

/// Extracts the graph of the function @train: its ops, layouts from `analysis`, roles from the
/// argument and result attributes. If there is an @update, its sums over all ranks are read too.
/// Clones made by tbc-recompute are equal to those of `reshard::withClones`, with their values
/// numbered last. tbc.reshard ops are skipped.
///
/// Errors: an op without a factor rule; inputs with a batch dim that is no factor of its own; an op
/// after the clone of a forward op that reads the original.
mlir::FailureOr<StepGraph> extractStepGraph(mlir::func::FuncOp train,
                                            const FactorAnalysis &analysis,
                                            mlir::func::FuncOp update = {});

/// The same without layouts and loops, so without a factor analysis: uses of values, phases,
/// chunks, cotangents.
mlir::FailureOr<StepGraph> extractStructure(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_IR_STEPGRAPH_H
