//===- Reshard.h - The op of Reshard.td ------------------------------------===//

#ifndef TBC_IR_RESHARD_H
#define TBC_IR_RESHARD_H

#include "ir/Plan.h"

#define GET_OP_CLASSES
#include "ir/Reshard.h.inc"

namespace tbc {

/// Returns the operand behind a chain of tbc.reshard ops, or `value` itself: a tbc.reshard does not
/// change the whole tensor.
mlir::Value throughReshards(mlir::Value value);

} // namespace tbc

#endif // TBC_IR_RESHARD_H
