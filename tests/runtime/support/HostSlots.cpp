//===- HostSlots.cpp - Programs with slots on the host ----------------------===//

#include "tests/runtime/support/HostSlots.h"

#include <algorithm>

namespace tbc::program {
namespace {

/// Returns whether an instruction or a result of the block reads the value.
bool isRead(const Block &block, ValueId value) {
  auto reads = [&](const Instruction &instruction) {
    return std::count(instruction.operands.begin(), instruction.operands.end(), value) > 0;
  };
  return std::any_of(block.instructions.begin(), block.instructions.end(), reads) ||
         std::any_of(block.results.begin(), block.results.end(),
                     [&](const BlockResult &result) { return result.value == value; });
}

/// Inserts a copy of `value` at index `place` of the block and returns the copy.
ValueId insertCopy(Stage &stage, Block &block, InstructionKind kind, const std::string &id,
                   ValueId value, size_t place) {
  Instruction copy;
  copy.id = id;
  copy.kind = kind;
  copy.operands = {value};
  copy.results = {ValueId(stage.values.size())};
  stage.values.push_back(kernels::TensorType(stage.values[size_t(value)]));
  ValueId made = copy.results[0];
  block.instructions.insert(block.instructions.begin() + int64_t(place), std::move(copy));
  return made;
}

/// Replaces reads of argument `value` by reads of a device copy, made right before the first read.
void fetchArgument(Stage &stage, Block &block, const std::string &id, ValueId value) {
  size_t first = 0;
  while (first < block.instructions.size() &&
         std::count(block.instructions[first].operands.begin(),
                    block.instructions[first].operands.end(), value) == 0)
    ++first;
  ValueId here = insertCopy(stage, block, InstructionKind::Fetch, id, value, first);
  for (size_t i = first + 1; i < block.instructions.size(); ++i)
    std::replace(block.instructions[i].operands.begin(), block.instructions[i].operands.end(),
                 value, here);
  for (BlockResult &result : block.results)
    result.value = result.value == value ? here : result.value;
}

/// Writes a host copy of the result to the slot. The copy is made right after the result.
void offloadResult(Stage &stage, Block &block, const std::string &id, BlockResult &result) {
  size_t after = 0;
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const std::vector<ValueId> &made = block.instructions[i].results;
    if (std::count(made.begin(), made.end(), result.value) > 0)
      after = i + 1;
  }
  result.value = insertCopy(stage, block, InstructionKind::Offload, id, result.value, after);
}

} // namespace

int moveToHost(Program &program, std::mt19937 &random) {
  int numMoved = 0;
  for (int s = 0; s < program.numStages(); ++s) {
    Stage &stage = program.stages[size_t(s)];
    for (int slot = 0; slot < int(stage.slots.size()); ++slot) {
      if (!mayBeOnHost(stage.slots[size_t(slot)].role) || random() % 2)
        continue;
      bool isUsed = true; // a fetch with an unused result would be invalid
      for (BlockId id : stage.blocks())
        for (const Argument &argument : stage.block(id).arguments)
          isUsed &= argument.slot != slot || isRead(stage.block(id), argument.value);
      if (!isUsed)
        continue;
      stage.slots[size_t(slot)].location = Location::Host;
      ++numMoved;
      for (BlockId id : stage.blocks()) {
        Block &block = stage.block(id);
        std::string of = stage.slots[size_t(slot)].name + "." + std::string(name(id.kind)) + "." +
                         std::to_string(id.chunk) + ".s" + std::to_string(s);
        for (const Argument &argument : block.arguments)
          if (argument.slot == slot)
            fetchArgument(stage, block, "fetch." + of, argument.value);
        for (BlockResult &result : block.results)
          if (result.slot == slot)
            offloadResult(stage, block, "offload." + of, result);
      }
    }
  }
  return numMoved;
}

} // namespace tbc::program
