//===- TbcOps.td - All ops, one family per file ----------------------------===//

#ifndef TBC_IR_OPS
#define TBC_IR_OPS

include "ir/Elementwise.td"
include "ir/Movement.td"
include "ir/Contraction.td"
include "ir/Collective.td"
include "ir/Convolution.td"
include "ir/Pooling.td"
include "ir/Normalization.td"
include "ir/Activation.td"
include "ir/Attention.td"
include "ir/Loss.td"
include "ir/Optimizer.td"

#endif // TBC_IR_OPS
