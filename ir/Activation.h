//===- Activation.h - The ops of Activation.td ----------------------------===//

#ifndef TBC_IR_ACTIVATION_H
#define TBC_IR_ACTIVATION_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Activation.h.inc"

#endif // TBC_IR_ACTIVATION_H
