//===- Contraction.h - The ops of Contraction.td --------------------------===//

#ifndef TBC_IR_CONTRACTION_H
#define TBC_IR_CONTRACTION_H

#include "ir/Tbc.h"

namespace tbc {

class ScatterAddOp;

/// Return the memory and the launches of a scatter_add of floats on GPUs (ir/RowSums.h).
WorkspaceFn scatterAddWorkspace(ScatterAddOp op);
LaunchesFn scatterAddLaunches(ScatterAddOp op);

} // namespace tbc

#define GET_OP_CLASSES
#include "ir/Contraction.h.inc"

#endif // TBC_IR_CONTRACTION_H
