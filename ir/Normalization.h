//===- Normalization.h - The ops of Normalization.td ----------------------===//

#ifndef TBC_IR_NORMALIZATION_H
#define TBC_IR_NORMALIZATION_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Normalization.h.inc"

#endif // TBC_IR_NORMALIZATION_H
