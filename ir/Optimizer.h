//===- Optimizer.h - The ops of Optimizer.td ------------------------------===//

#ifndef TBC_IR_OPTIMIZER_H
#define TBC_IR_OPTIMIZER_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Optimizer.h.inc"

#endif // TBC_IR_OPTIMIZER_H
