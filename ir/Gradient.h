//===- Gradient.h - The ops of Gradient.td --------------------------------===//

#ifndef TBC_IR_GRADIENT_H
#define TBC_IR_GRADIENT_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Gradient.h.inc"

namespace tbc {

/// Returns true if a gradient passes through `value` to a parameter.
bool isTrained(mlir::Value value);

} // namespace tbc

#endif // TBC_IR_GRADIENT_H
