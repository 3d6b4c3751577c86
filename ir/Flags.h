//===- Flags.h - Integers that stand for booleans --------------------------===//

#ifndef TBC_IR_FLAGS_H
#define TBC_IR_FLAGS_H

#include "llvm/ADT/StringRef.h"

namespace tbc {

/// On a cast of integers to booleans: they are 0 or 1, for other numbers mean something else to the
/// model. Runs refuse data with other numbers. Example: the mask of -10000 * (1 - mask).
inline constexpr llvm::StringLiteral kFlagsAttr = "tbc.flags";

} // namespace tbc

#endif // TBC_IR_FLAGS_H
