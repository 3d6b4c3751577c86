//===- Loss.h - The ops of Loss.td ----------------------------------------===//

#ifndef TBC_IR_LOSS_H
#define TBC_IR_LOSS_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Loss.h.inc"

#endif // TBC_IR_LOSS_H
