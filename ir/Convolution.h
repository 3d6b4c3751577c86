//===- Convolution.h - The ops of Convolution.td --------------------------===//

#ifndef TBC_IR_CONVOLUTION_H
#define TBC_IR_CONVOLUTION_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Convolution.h.inc"

#endif // TBC_IR_CONVOLUTION_H
