//===- InsertCollectives.h - Collectives on whole tensors ------------------===//

#ifndef TBC_PASSES_PLAN_INSERTCOLLECTIVES_H
#define TBC_PASSES_PLAN_INSERTCOLLECTIVES_H

#include "passes/plan/DeriveShardings.h"

namespace tbc {

/// Puts a tbc.reshard into @train for every derived reshard of a micro-batch: before the op that
/// wants it, or after the op that makes the value. Ops then read its result. tbc-partition emits
/// the reshards of the update. Error: @train has a tbc.reshard already.
mlir::LogicalResult insertCollectives(DerivedStep &step);

/// Gives the members of buckets their `bucket`, and moves gathers of parameters ahead of their use
/// (reshard::planOverlap). Errors: those of checkCollectives.
mlir::LogicalResult bucketCollectives(DerivedStep &step);

/// Compares the tbc.reshard ops of @train, if there are any, with the derivation. Errors, at the
/// op: it is not derived, is derived otherwise, or stands twice; its bucket is not derived. At
/// @train: a derived one is missing.
mlir::LogicalResult checkCollectives(DerivedStep &step);

} // namespace tbc

#endif // TBC_PASSES_PLAN_INSERTCOLLECTIVES_H
