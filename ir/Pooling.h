//===- Pooling.h - The ops of Pooling.td ----------------------------------===//

#ifndef TBC_IR_POOLING_H
#define TBC_IR_POOLING_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Pooling.h.inc"

#endif // TBC_IR_POOLING_H
