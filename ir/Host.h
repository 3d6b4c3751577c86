//===- Host.h - The ops of Host.td -----------------------------------------===//

#ifndef TBC_IR_HOST_H
#define TBC_IR_HOST_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Host.h.inc"

#endif // TBC_IR_HOST_H
