//===- Random.h - The ops of Random.td ------------------------------------===//

#ifndef TBC_IR_RANDOM_H
#define TBC_IR_RANDOM_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Random.h.inc"

#endif // TBC_IR_RANDOM_H
