//===- Elementwise.h - The ops of Elementwise.td --------------------------===//

#ifndef TBC_IR_ELEMENTWISE_H
#define TBC_IR_ELEMENTWISE_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Elementwise.h.inc"

#endif // TBC_IR_ELEMENTWISE_H
