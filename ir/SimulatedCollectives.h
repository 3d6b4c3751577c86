//===- SimulatedCollectives.h - What collectives do to the values of all ranks ===//

#ifndef TBC_IR_SIMULATEDCOLLECTIVES_H
#define TBC_IR_SIMULATEDCOLLECTIVES_H

#include "ir/Interpreter.h"

namespace tbc {

/// Whether `op` exchanges values between ranks, or depends on the rank (shard_slice).
bool isCollective(mlir::Operation *op);

/// The result of a collective on every rank of `mesh`. Sums run over the group in ascending order
/// and are rounded once. Errors, at the op: an axis that the mesh lacks, segments that do not fit
/// the shapes, a group across pipeline stages (which are different functions).
mlir::FailureOr<llvm::SmallVector<RankTensors>>
simulateCollective(mlir::Operation *op, llvm::ArrayRef<RankTensors> operands,
                   const reshard::Mesh &mesh);

} // namespace tbc

#endif // TBC_IR_SIMULATEDCOLLECTIVES_H
