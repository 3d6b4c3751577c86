//===- Movement.h - The ops of Movement.td --------------------------------===//

#ifndef TBC_IR_MOVEMENT_H
#define TBC_IR_MOVEMENT_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Movement.h.inc"

#endif // TBC_IR_MOVEMENT_H
