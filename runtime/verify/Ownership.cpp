//===- Ownership.cpp - Every parameter byte has an owner -------------------===//

#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

namespace tbc::verify {

using program::Program;
using program::Role;
using program::Stage;

/// The stage's slot for a tensor, or -1. More than one would be two truths.
static Status findSlot(const Program &program, int stageIndex, int tensor, int &found) {
  found = -1;
  const Stage &stage = program.stages[stageIndex];
  for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
    if (stage.slots[slot].tensor != tensor)
      continue;
    if (found >= 0)
      return rejected("stage " + std::to_string(stageIndex),
                      "slots \"" + stage.slots[found].name + "\" and \"" + stage.slots[slot].name +
                          "\" both hold tensor \"" + program.tensors[tensor].name + "\"");
    found = static_cast<int>(slot);
  }
  return Status::ok();
}

static bool isWritten(const Stage &stage, int slot) {
  for (Kind kind : allKinds) {
    for (const program::BlockResult &result : stage.block(kind).results) {
      if (result.slot == slot)
        return true;
    }
  }
  return false;
}

static Status checkTensor(const Program &program, int tensor) {
  const program::GlobalTensor &global = program.tensors[tensor];
  int updatingStage = -1, otherStage = -1;
  for (int stage = 0; stage < program.numStages(); ++stage) {
    int slot = -1;
    if (Status status = findSlot(program, stage, tensor, slot); !status)
      return status;
    if (slot >= 0)
      (isWritten(program.stages[stage], slot) ? updatingStage : otherStage) = stage;
  }
  std::string what = std::string(name(global.role)) + " \"" + global.name + "\"";
  bool outlivesAStep = global.role == Role::Parameter || global.role == Role::State ||
                       global.role == Role::OptimizerState;
  if (!outlivesAStep)
    return Status::ok();
  if (updatingStage < 0 && otherStage < 0)
    return rejected(what, "no rank holds it");
  if (updatingStage >= 0 && otherStage >= 0)
    return rejected(what, "stage " + std::to_string(updatingStage) + " updates it, stage " +
                              std::to_string(otherStage) + " holds it too and does not");
  return Status::ok();
}

Status checkOwnership(const Program &program) {
  for (size_t tensor = 0; tensor < program.tensors.size(); ++tensor) {
    if (Status status = checkTensor(program, int(tensor)); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
