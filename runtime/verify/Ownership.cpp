//===- Ownership.cpp - Every parameter byte has an owner -------------------===//

#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

#include <map>
#include <vector>

namespace tbc::verify {

using program::Program;
using program::Role;
using program::Stage;

namespace {
/// A stage updating the tensor, and a stage only holding it; -1 if there is no such stage.
struct Holders {
  int updatingStage = -1, otherStage = -1;
};

/// Returns the slots that some block of the stage writes.
std::vector<bool> writtenSlots(const Stage &stage) {
  std::vector<bool> isWritten(stage.slots.size(), false);
  for (BlockId block : stage.blocks()) {
    for (const program::BlockResult &result : stage.block(block).results)
      isWritten[result.slot] = true;
  }
  return isWritten;
}

/// Adds a stage's slots to `holders` (by tensor). Two slots of one tensor on a stage are an error,
/// because they could differ.
Status addHolders(const Program &program, int stageIndex, std::vector<Holders> &holders) {
  const Stage &stage = program.stages[stageIndex];
  std::vector<bool> isWritten = writtenSlots(stage);
  std::map<int, size_t> slotOf;
  for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
    int tensor = stage.slots[slot].tensor;
    if (tensor < 0)
      continue;
    auto [found, isNew] = slotOf.try_emplace(tensor, slot);
    if (!isNew)
      return rejected("stage " + std::to_string(stageIndex),
                      "slots \"" + stage.slots[found->second].name + "\" and \"" +
                          stage.slots[slot].name + "\" both hold tensor \"" +
                          program.tensors[tensor].name + "\"");
    (isWritten[slot] ? holders[tensor].updatingStage : holders[tensor].otherStage) = stageIndex;
  }
  return Status::ok();
}

Status checkTensor(const program::GlobalTensor &global, const Holders &holders) {
  std::string what = std::string(name(global.role)) + " \"" + global.name + "\"";
  bool outlivesAStep = global.role == Role::Parameter || global.role == Role::State ||
                       global.role == Role::OptimizerState;
  if (!outlivesAStep)
    return Status::ok();
  if (holders.updatingStage < 0 && holders.otherStage < 0)
    return rejected(what, "no rank holds it");
  if (holders.updatingStage >= 0 && holders.otherStage >= 0)
    return rejected(what, "stage " + std::to_string(holders.updatingStage) + " updates it, stage " +
                              std::to_string(holders.otherStage) + " holds it too and does not");
  return Status::ok();
}
} // namespace

Status checkOwnership(const Program &program) {
  std::vector<Holders> holders(program.tensors.size());
  for (int stage = 0; stage < program.numStages(); ++stage) {
    if (Status status = addHolders(program, stage, holders); !status)
      return status;
  }
  for (size_t tensor = 0; tensor < program.tensors.size(); ++tensor) {
    if (Status status = checkTensor(program.tensors[tensor], holders[tensor]); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
