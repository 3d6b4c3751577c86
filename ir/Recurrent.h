//===- Recurrent.h - The ops of Recurrent.td -------------------------------===//

#ifndef TBC_IR_RECURRENT_H
#define TBC_IR_RECURRENT_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Recurrent.h.inc"

#endif // TBC_IR_RECURRENT_H
