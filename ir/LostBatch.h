//===- LostBatch.h - The op that joins the batch with another dim ----------===//

#ifndef TBC_IR_LOSTBATCH_H
#define TBC_IR_LOSTBATCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tbc {

/// Begins an error about a function whose batch dims are not one factor of their own. It is at the
/// first op that makes them so, and says that; at the function if its inputs disagree. Example: at
/// a reshape of [batch, 3, 4] to [3, batch * 4] it begins "joins the batch with another dim".
mlir::InFlightDiagnostic emitLostBatch(mlir::func::FuncOp func);

} // namespace tbc

#endif // TBC_IR_LOSTBATCH_H
