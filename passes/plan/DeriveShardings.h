//===- DeriveShardings.h - The sharding of every value ---------------------===//

#ifndef TBC_PASSES_PLAN_DERIVESHARDINGS_H
#define TBC_PASSES_PLAN_DERIVESHARDINGS_H

#include "ir/PlannedStep.h"

namespace tbc {

/// An annotated step and the result of its plan: the shardings of all values, every collective, and
/// its pieces.
struct DerivedStep {
  PlannedStep planned;
  reshard::Derivation derivation;
  reshard::Overlap overlap;
};

/// Reads the plan on `module` and derives the rest (reshard::derive, reshard::planOverlap). Errors:
/// those of readPlannedStep.
mlir::FailureOr<DerivedStep> deriveStep(mlir::ModuleOp module);

/// deriveStep as an analysis of the pass manager: tbc-derive-shardings leaves it for tbc-partition.
struct DerivedStepAnalysis {
  explicit DerivedStepAnalysis(mlir::Operation *module);
  mlir::FailureOr<DerivedStep> step;
};

/// Writes the derived shardings on arguments and ops of @train: `tbc.sharding`, `tbc.produced`,
/// `tbc.wanted`, `tbc.used`, `tbc.gradient` and `tbc.state` (ir/Plan.h).
void writeShardings(DerivedStep &step);

/// Compares the shardings on @train, if there are any, with the derived ones. Errors, at the op: a
/// sharding that is impossible for its tensor (reshard::whyInvalid), or that does not follow from
/// the strategies on the IR. The plan decides on strategies; shardings follow.
mlir::LogicalResult checkShardings(DerivedStep &step);

} // namespace tbc

#endif // TBC_PASSES_PLAN_DERIVESHARDINGS_H
