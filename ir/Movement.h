//===- Movement.h - The ops of Movement.td --------------------------------===//

#ifndef TBC_IR_MOVEMENT_H
#define TBC_IR_MOVEMENT_H

#include "ir/Tbc.h"

namespace tbc {
class SliceOp;
class ConcatOp;
/// What these ops do with columns, the last dim.
ColumnUse columnsOfSlice(SliceOp op);
ColumnUse columnsOfConcat(ConcatOp op);
} // namespace tbc

#define GET_OP_CLASSES
#include "ir/Movement.h.inc"

#endif // TBC_IR_MOVEMENT_H
