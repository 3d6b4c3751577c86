//===- AssignStreams.cpp - Overlap communication with kernels ----------------===//

#include "codegen/AssignStreams.h"

#include "runtime/abi/Region.h"
#include "runtime/memory/Streams.h"

#include <map>

namespace tbc {

using program::Block;
using program::Instruction;
using program::InstructionKind;

/// The instructions of a region are one step: it waits for everything that one of them waits for.
static void assignStreams(Block &block) {
  const std::vector<std::pair<int, int>> spans = program::regionSpans(block);
  std::map<program::ValueId, int> sources;
  std::vector<memory::StreamUse> uses;
  std::vector<std::pair<int, int>> steps; // spans, by use
  for (int i = 0; i < int(block.instructions.size()); ++i) {
    const Instruction &instruction = block.instructions[i];
    if (spans[i].first == i) {
      uses.emplace_back();
      steps.push_back(spans[i]);
    }
    memory::StreamUse &use = uses.back();
    use.isCommunication =
        isCommunication(instruction.kind) && instruction.kind != InstructionKind::ShardSlice;
    int step = int(uses.size()) - 1;
    for (program::ValueId value : instruction.operands)
      if (auto source = sources.find(value); source != sources.end() && source->second != step)
        use.sources.push_back(source->second);
    for (program::ValueId value : instruction.results)
      sources[value] = step;
  }
  std::vector<memory::StreamStep> assigned = memory::overlapCommunication(uses);
  for (size_t s = 0; s < assigned.size(); ++s) {
    for (int i = steps[s].first; i <= steps[s].second; ++i) {
      block.instructions[i].stream = program::Stream(assigned[s].stream);
      block.instructions[i].waits.clear();
    }
    for (int wait : assigned[s].waits)
      block.instructions[steps[s].first].waits.push_back(steps[wait].second);
  }
}

void assignStreams(program::Program &program) {
  for (program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks())
      assignStreams(stage.block(id));
}

} // namespace tbc
