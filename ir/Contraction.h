//===- Contraction.h - The ops of Contraction.td --------------------------===//

#ifndef TBC_IR_CONTRACTION_H
#define TBC_IR_CONTRACTION_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Contraction.h.inc"

#endif // TBC_IR_CONTRACTION_H
