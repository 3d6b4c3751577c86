//===- Reshard.h - The op of Reshard.td ------------------------------------===//

#ifndef TBC_IR_RESHARD_H
#define TBC_IR_RESHARD_H

#include "ir/Plan.h"

#define GET_OP_CLASSES
#include "ir/Reshard.h.inc"

namespace tbc {

/// The value that `value` is, seen through tbc.reshard: whole tensors do not change there.
mlir::Value throughReshards(mlir::Value value);

} // namespace tbc

#endif // TBC_IR_RESHARD_H
