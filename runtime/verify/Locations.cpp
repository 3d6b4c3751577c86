//===- Locations.cpp - Host slots are filled and read by copies -------------===//

#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

namespace tbc::verify {
namespace {

using program::Block;
using program::Instruction;
using program::InstructionKind;
using program::Location;
using program::Program;
using program::Stage;
using program::ValueId;

std::string percent(ValueId value) { return "%" + std::to_string(value); }

Status checkBlock(const Program &program, int stageIndex, BlockId id,
                  const std::vector<bool> &isOnHost) {
  const Stage &stage = program.stages[stageIndex];
  const Block &block = stage.block(id);
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const Instruction &instruction = block.instructions[i];
    bool wantsHost = instruction.kind == InstructionKind::Fetch;
    for (ValueId value : instruction.operands) {
      if (isOnHost[value] == wantsHost)
        continue;
      return rejected(describe(program, stageIndex, id, int(i)),
                      "it reads value " + percent(value) +
                          (wantsHost ? ", which is on the device" : ", which is on the host"));
    }
  }
  for (const program::BlockResult &result : block.results) {
    bool toHost = stage.slots[result.slot].location == Location::Host;
    if (isOnHost[result.value] != toHost)
      return rejected(
          slotPlace(program, stageIndex, id, result.slot),
          toHost ? "it is on the host, value " + percent(result.value) + " is on the device"
                 : "it is on the device, value " + percent(result.value) + " is on the host");
  }
  return Status::ok();
}

} // namespace

Status checkLocations(const Program &program) {
  for (int stage = 0; stage < program.numStages(); ++stage) {
    std::vector<bool> isOnHost = valuesOnHost(program.stages[stage]);
    for (BlockId id : program.stages[stage].blocks())
      if (Status status = checkBlock(program, stage, id, isOnHost); !status)
        return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
