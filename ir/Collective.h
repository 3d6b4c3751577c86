//===- Collective.h - The ops of Collective.td ----------------------------===//

#ifndef TBC_IR_COLLECTIVE_H
#define TBC_IR_COLLECTIVE_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Collective.h.inc"

#endif // TBC_IR_COLLECTIVE_H
