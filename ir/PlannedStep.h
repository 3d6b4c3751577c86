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

/// Everything that `reshard::derive` and the partitioner need, from an annotated module alone.
struct PlannedStep {
  mlir::func::FuncOp train, update;
  std::unique_ptr<FactorAnalysis> analysis; // of train
  StepGraph step;                           // of train, in the sizes of its types
  /// The graph of `step` with as many samples as `tbc.batch` says.
  reshard::Graph graph;
  reshard::Assignment assignment;
  reshard::OverlapSettings overlap;
  /// Of how many ranks this is the zigzag order, in which the tokens of a sequence stand; 1: the
  /// original order.
  int64_t zigzag = 1;
};

/// Reads the attributes of Plan.h on `module`, its functions @train and @update and their ops. An
/// op without `tbc.strategy` is whole on every rank; a parameter without `tbc.parameter_plan` is
/// held by every rank that uses it.
///
/// Errors: a module without @train, @update or `tbc.mesh`; an attribute of another kind; as of
/// extractStepGraph; a plan that `derive` cannot take (reshard::whyInvalid).
mlir::FailureOr<PlannedStep> readPlannedStep(mlir::ModuleOp module);

/// The mesh of an annotated module. Error: there is none, with the pass that writes it.
mlir::FailureOr<reshard::Mesh> readMesh(mlir::ModuleOp module);

/// A function of the module. Error: there is none of that name.
mlir::FailureOr<mlir::func::FuncOp> findFunction(mlir::ModuleOp module, llvm::StringRef name);

} // namespace tbc

#endif // TBC_IR_PLANNEDSTEP_H
