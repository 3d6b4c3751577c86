//===- AssignStreams.cpp - Overlap communication with kernels ----------------===//

#include "codegen/AssignStreams.h"

#include "runtime/memory/Streams.h"

#include <map>

namespace tbc {

using program::Block;
using program::Instruction;
using program::InstructionKind;

static void assignStreams(Block &block) {
  std::map<program::ValueId, int> sources;
  std::vector<memory::StreamUse> uses;
  for (const Instruction &instruction : block.instructions) {
    memory::StreamUse use;
    use.isCommunication =
        isCommunication(instruction.kind) && instruction.kind != InstructionKind::ShardSlice;
    for (program::ValueId value : instruction.operands)
      if (auto source = sources.find(value); source != sources.end())
        use.sources.push_back(source->second);
    for (program::ValueId value : instruction.results)
      sources[value] = int(uses.size());
    uses.push_back(std::move(use));
  }
  std::vector<memory::StreamStep> steps = memory::overlapCommunication(uses);
  for (size_t i = 0; i < steps.size(); ++i) {
    block.instructions[i].stream = program::Stream(steps[i].stream);
    block.instructions[i].waits = std::move(steps[i].waits);
  }
}

void assignStreams(program::Program &program) {
  for (program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks())
      assignStreams(stage.block(id));
}

} // namespace tbc
