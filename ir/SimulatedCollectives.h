//===- SimulatedCollectives.h - Collectives on the values of all ranks ===========//

#ifndef TBC_IR_SIMULATEDCOLLECTIVES_H
#define TBC_IR_SIMULATEDCOLLECTIVES_H

#include "ir/Interpreter.h"

namespace tbc {

/// Returns true if `op` exchanges values between ranks, or depends on the rank (shard_slice).
bool isCollective(mlir::Operation *op);

/// Returns the result of a collective on every rank of `mesh`. Sums run over the group in ascending
/// order and are rounded once. Example: all_reduce of 1 on rank 0 and 2 on rank 1 is 3 on both.
/// Errors, at the op: an axis missing in the mesh, segments that do not fit the shapes, a group
/// across pipeline stages (which are different functions).
mlir::FailureOr<llvm::SmallVector<RankTensors>>
simulateCollective(mlir::Operation *op, llvm::ArrayRef<RankTensors> operands,
                   const reshard::Mesh &mesh);

} // namespace tbc

#endif // TBC_IR_SIMULATEDCOLLECTIVES_H
