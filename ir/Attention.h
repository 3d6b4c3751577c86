//===- Attention.h - The ops of Attention.td ------------------------------===//

#ifndef TBC_IR_ATTENTION_H
#define TBC_IR_ATTENTION_H

#include "ir/Tbc.h"
// For those who emit attention: biasLayouts, and HeadLayout.
#include "runtime/kernels/AttentionScore.h"
#include "runtime/kernels/HeadLayout.h"

#define GET_OP_CLASSES
#include "ir/Attention.h.inc"

#endif // TBC_IR_ATTENTION_H
