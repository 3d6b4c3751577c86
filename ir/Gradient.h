//===- Gradient.h - The ops of Gradient.td --------------------------------===//

#ifndef TBC_IR_GRADIENT_H
#define TBC_IR_GRADIENT_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Gradient.h.inc"

#endif // TBC_IR_GRADIENT_H
