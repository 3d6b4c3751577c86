//===- TbcOps.td - All ops, one family per file ----------------------------===//

#ifndef TBC_IR_OPS
#define TBC_IR_OPS

include "ir/Elementwise.td"
include "ir/Movement.td"
include "ir/Contraction.td"
include "ir/Collective.td"

#endif // TBC_IR_OPS
