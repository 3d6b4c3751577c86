//===- Experts.h - The ops of Experts.td --------------------------===//

#ifndef TBC_IR_EXPERTS_H
#define TBC_IR_EXPERTS_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Experts.h.inc"

#endif // TBC_IR_EXPERTS_H
