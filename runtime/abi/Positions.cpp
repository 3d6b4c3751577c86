//===- Positions.cpp - The position ids of an attention ---------------------===//

#include "runtime/abi/Positions.h"

#include <algorithm>

namespace tbc::program {

std::optional<size_t> positionOperand(const Instruction &attention) {
  if (!attention.attrs.getBool("placed", false))
    return std::nullopt;
  const size_t behind = attention.attrs.getBool("drops_out", false) ? 7 : 2;
  return attention.operands.size() - behind;
}

bool positionsAreIndices(const Block &block, const Instruction &attention) {
  const std::optional<size_t> number = positionOperand(attention);
  if (!number || attention.operands[*number] != attention.operands[*number + 1])
    return false;
  return std::any_of(
      block.instructions.begin(), block.instructions.end(), [&](const Instruction &instruction) {
        return instruction.op == "iota" && instruction.results[0] == attention.operands[*number];
      });
}

} // namespace tbc::program
