//===- PlannedStep.h - The step and its plan, read from the IR -------------===//

#ifndef TBC_IR_PLANNEDSTEP_H
#define TBC_IR_PLANNEDSTEP_H

#include "ir/FactorAnalysis.h"
#include "ir/Plan.h"
#include "ir/StepGraph.h"
#include "planner/reshard/Overlap.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace tbc {

/// The input of `reshard::derive` and the partitioner, from an annotated module alone.
struct PlannedStep {
  mlir::func::FuncOp train, update;
  std::unique_ptr<FactorAnalysis> analysis; // of train
  StepGraph step;                           // of train, in the sizes of its types
  /// The graph of `step` for `tbc.batch` samples.
  reshard::Graph graph;
  reshard::Assignment assignment;
  reshard::OverlapSettings overlap;
  /// The number of ranks of the zigzag order of the tokens of a sequence; 1: the original order.
  /// Example: with 2 ranks, rank 0 has parts 0 and 3 of four.
  int64_t zigzag = 1;
};

/// Reads the attributes of Plan.h on `module`, its functions @train and @update and their ops. An
/// op without `tbc.strategy` is whole on every rank. Every rank that uses a parameter without
/// `tbc.parameter_plan` holds it whole.
///
/// Errors:
/// - a module without @train, @update or `tbc.mesh`;
/// - an attribute of another kind;
/// - the errors of `extractStepGraph`;
/// - an invalid plan (`reshard::whyInvalid`).
mlir::FailureOr<PlannedStep> readPlannedStep(mlir::ModuleOp module);

/// Returns the mesh of an annotated module. If it is missing, the error names the pass that writes
/// it.
mlir::FailureOr<reshard::Mesh> readMesh(mlir::ModuleOp module);

/// Returns the function `name` of the module, or an error if it is missing.
mlir::FailureOr<mlir::func::FuncOp> findFunction(mlir::ModuleOp module, llvm::StringRef name);

} // namespace tbc

#endif // TBC_IR_PLANNEDSTEP_H
