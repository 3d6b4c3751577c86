//===- TbcOpsShard3.cpp - Generated op bodies, part 3 -----------------------===//
//
// Apart from the hand-written code, so that editing a verifier does not compile them again.
//
//===----------------------------------------------------------------------===//

#include "ir/Tbc.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"

#define GET_OP_DEFS_3
#include "ir/TbcOps.cpp.inc"
