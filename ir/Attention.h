//===- Attention.h - The ops of Attention.td ------------------------------===//

#ifndef TBC_IR_ATTENTION_H
#define TBC_IR_ATTENTION_H

#include "ir/Tbc.h"
#include "runtime/kernels/AttentionScore.h" // biasLayouts, for those who emit attention

#define GET_OP_CLASSES
#include "ir/Attention.h.inc"

#endif // TBC_IR_ATTENTION_H
