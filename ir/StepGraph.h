//===- StepGraph.h - From @train to the planner's graph --------------------===//

#ifndef TBC_IR_STEPGRAPH_H
#define TBC_IR_STEPGRAPH_H

#include "ir/FactorAnalysis.h"
#include "planner/reshard/Graph.h"

#include "llvm/ADT/DenseMap.h"

namespace tbc {

/// The step as planner and partitioner see it, with the way back to the IR.
struct StepGraph {
  reshard::Graph graph;
  llvm::DenseMap<mlir::Value, int> valueIndex;
  llvm::DenseMap<mlir::Operation *, int> opIndex;
  std::vector<mlir::Value> values;    // per graph value
  std::vector<mlir::Operation *> ops; // per graph op
  /// Per graph op and loop: the loops of the op's factor rule that it is (a factor of); several
  /// where they are segments of one dim, which are sharded together.
  std::vector<std::vector<std::vector<unsigned>>> ruleLoops;
};

/// Extracts the graph of the function @train: its ops, layouts from `analysis`, roles from the
/// argument and result attributes; from @update, if there is one, what it adds up over all ranks.
/// Clones made by tbc-recompute come out as reshard::withClones makes them, with their values
/// numbered last. It sees through tbc.reshard.
///
/// Errors: an op without a factor rule; inputs whose batch dim is no factor of its own; an op that
/// stands after the clone of a forward op and reads the original.
mlir::FailureOr<StepGraph> extractStepGraph(mlir::func::FuncOp train,
                                            const FactorAnalysis &analysis,
                                            mlir::func::FuncOp update = {});

/// The same without layouts and loops, which need no factor analysis: who reads what, phases,
/// chunks, cotangents.
mlir::FailureOr<StepGraph> extractStructure(mlir::func::FuncOp train);

} // namespace tbc

#endif // TBC_IR_STEPGRAPH_H
