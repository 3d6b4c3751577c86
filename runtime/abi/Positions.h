//===- Positions.h - The position ids of an attention -----------------------===//
//
// Part of tbc. Plain C++. Libraries and compiled kernels ask it whether they may compute positions
// in place of reading them.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_ABI_POSITIONS_H
#define TBC_RUNTIME_ABI_POSITIONS_H

#include "runtime/abi/Program.h"

#include <optional>

namespace tbc::program {

/// Returns the operand number of the position ids of the queries of an attention or its gradient;
/// those of the keys are the next operand. Empty without position ids (`placed`). Five operands of
/// dropout follow them. Example: q, k, v and the two of `placed` give 3.
std::optional<size_t> positionOperand(const Instruction &attention);

/// Returns whether `attention` has position ids, and these are 0, 1, 2, ... for queries and keys:
/// both are one iota of `block`. Its window then means the same without them, because queries and
/// keys are as many. The parts of a sequence on a rank (context parallelism) have others.
bool positionsAreIndices(const Block &block, const Instruction &attention);

} // namespace tbc::program

#endif // TBC_RUNTIME_ABI_POSITIONS_H
