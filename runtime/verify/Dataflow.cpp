//===- Dataflow.cpp - Every read follows its write -------------------------===//

#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

#include <algorithm>
#include <set>

namespace tbc::verify {
namespace {

using program::Block;
using program::Instruction;
using program::InstructionKind;
using program::Program;
using program::Role;
using program::Slot;
using program::Stage;
using program::ValueId;
using schedule::Action;

std::string percent(ValueId value) { return "%" + std::to_string(value); }

/// The values of one stage: where each is defined and read.
class ValueChecker {
public:
  ValueChecker(const Program &program, int stageIndex)
      : program(program), stageIndex(stageIndex), stage(program.stages[stageIndex]),
        isDefined(stage.values.size(), false) {}

  Status check() {
    for (Kind kind : allKinds) {
      if (Status status = checkBlock(kind); !status)
        return status;
    }
    return Status::ok();
  }

private:
  Status checkBlock(Kind kind) {
    const Block &block = stage.block(kind);
    std::vector<bool> isHere(stage.values.size(), false), isRead(stage.values.size(), false);
    for (const program::Argument &argument : block.arguments) {
      if (isDefined[argument.value])
        return rejected(slotPlace(program, stageIndex, kind, argument.slot),
                        "value " + percent(argument.value) + " is defined twice");
      isDefined[argument.value] = isHere[argument.value] = true;
    }
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      for (ValueId value : instruction.operands) {
        if (!isHere[value])
          return rejected(describe(program, stageIndex, kind, int(i)),
                          "value " + percent(value) + " is read before it is written");
        isRead[value] = true;
      }
      for (ValueId value : instruction.results) {
        if (isDefined[value])
          return rejected(describe(program, stageIndex, kind, int(i)),
                          "value " + percent(value) + " is defined twice");
        isDefined[value] = isHere[value] = true;
      }
    }
    for (const program::BlockResult &result : block.results) {
      if (!isHere[result.value])
        return rejected(slotPlace(program, stageIndex, kind, result.slot),
                        "value " + percent(result.value) + " is read before it is written");
      isRead[result.value] = true;
    }
    return checkUsed(kind, isRead);
  }

  /// A result that nobody reads was meant for somebody. In forward and backward a kernel may have
  /// some of that kind beside one that is read.
  Status checkUsed(Kind kind, const std::vector<bool> &isRead) {
    const Block &block = stage.block(kind);
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      auto isUnread = [&](ValueId value) { return !isRead[value]; };
      auto unread = std::find_if(instruction.results.begin(), instruction.results.end(), isUnread);
      bool mayHaveSome = kind != Kind::Update && instruction.kind == InstructionKind::Kernel;
      bool isWrong = mayHaveSome ? !instruction.results.empty() &&
                                       std::all_of(unread, instruction.results.end(), isUnread) &&
                                       unread == instruction.results.begin()
                                 : unread != instruction.results.end();
      if (isWrong)
        return rejected(describe(program, stageIndex, kind, int(i)),
                        "its result " + percent(*unread) + " is never used");
    }
    return Status::ok();
  }

  const Program &program;
  int stageIndex;
  const Stage &stage;
  std::vector<bool> isDefined;
};

/// Whether blocks of this kind may write slots of this role.
bool mayWrite(Kind kind, Role role) {
  switch (role) {
  case Role::Parameter:
  case Role::OptimizerState:
    return kind == Kind::Update;
  case Role::State:
    return kind == Kind::Forward;
  case Role::Residual:
    return kind == Kind::Forward;
  case Role::Gradient:
    return kind != Kind::Forward;
  case Role::Loss:
    return true;
  case Role::Input:
  case Role::Scalar:
    return false;
  }
  return false;
}

bool livesAMicroBatch(Role role) { return role == Role::Residual || role == Role::Input; }
bool gathersMicroBatches(Role role) { return role == Role::Gradient || role == Role::Loss; }

/// What a block reads and writes, slot by slot.
struct SlotUse {
  std::vector<bool> isRead, isWritten; // by slot

  SlotUse(const Stage &stage, Kind kind)
      : isRead(stage.slots.size(), false), isWritten(stage.slots.size(), false) {
    for (const program::Argument &argument : stage.block(kind).arguments)
      isRead[argument.slot] = true;
    for (const program::BlockResult &result : stage.block(kind).results)
      isWritten[result.slot] = true;
  }
};

/// What a stage's blocks do to its slots, whatever the order of blocks.
class SlotChecker {
public:
  SlotChecker(const Program &program, int stageIndex, bool isTraining)
      : program(program), stageIndex(stageIndex), isTraining(isTraining),
        stage(program.stages[stageIndex]),
        use{{stage, Kind::Forward}, {stage, Kind::Backward}, {stage, Kind::Update}} {}

  Status check() {
    for (Kind kind : allKinds) {
      if (Status status = checkReads(kind); !status)
        return status;
      if (Status status = checkWrites(kind); !status)
        return status;
    }
    return checkGathered();
  }

private:
  Status reject(Kind kind, int slot, const std::string &why) {
    return rejected(slotPlace(program, stageIndex, kind, slot), why);
  }

  Status checkReads(Kind kind) {
    for (const program::Argument &argument : stage.block(kind).arguments) {
      Role role = stage.slots[argument.slot].role;
      if (kind == Kind::Update && livesAMicroBatch(role))
        return reject(kind, argument.slot, "it lives for a micro-batch only, update has none");
      if (kind == Kind::Forward && role == Role::Residual)
        return reject(kind, argument.slot, "it is read before it is written");
      if (kind == Kind::Backward && role == Role::Residual && !writes(Kind::Forward, argument.slot))
        return reject(kind, argument.slot, "it is read, but forward does not write it");
      if (kind != Kind::Update && gathersMicroBatches(role) && !writes(kind, argument.slot))
        return reject(kind, argument.slot, "it is read before all micro-batches are gathered");
    }
    return Status::ok();
  }

  Status checkWrites(Kind kind) {
    const Block &block = stage.block(kind);
    std::set<int> written; // without accumulation
    std::set<std::pair<int, ValueId>> added;
    for (const program::BlockResult &result : block.results) {
      Role role = stage.slots[result.slot].role;
      if (!mayWrite(kind, role))
        return reject(kind, result.slot, "this block may not write it");
      if (result.accumulate && !gathersMicroBatches(role))
        return reject(kind, result.slot,
                      "it is added to, which only gradients and the loss may be");
      if (result.accumulate && !added.insert({result.slot, result.value}).second)
        return reject(kind, result.slot, percent(result.value) + " is added to it twice");
      if (!result.accumulate && !written.insert(result.slot).second)
        return reject(kind, result.slot, "it is written twice");
    }
    for (const auto &[slot, value] : added) {
      if (written.count(slot))
        return reject(kind, slot, "it is both written and added to");
    }
    return checkAccumulation(kind);
  }

  /// What is written over a gradient or the loss is made from what it held; what is added to it is
  /// not, which would count that twice.
  Status checkAccumulation(Kind kind) {
    const Block &block = stage.block(kind);
    std::set<int> slots;
    for (const program::BlockResult &result : block.results) {
      if (gathersMicroBatches(stage.slots[result.slot].role) && use[int(kind)].isRead[result.slot])
        slots.insert(result.slot);
    }
    std::vector<int> madeFrom = valuesMadeFrom(block, slots);
    for (const program::BlockResult &result : block.results) {
      if (!gathersMicroBatches(stage.slots[result.slot].role))
        continue;
      bool isMadeFromIt =
          madeFrom[result.value] == result.slot || madeFrom[result.value] == several;
      if (result.accumulate && isMadeFromIt)
        return reject(kind, result.slot, "what is added to it is made from it");
      if (kind != Kind::Update && !result.accumulate && !isMadeFromIt)
        return reject(kind, result.slot, "it is overwritten, other micro-batches are lost");
    }
    return Status::ok();
  }

  static constexpr int none = -1, several = -2;

  /// Per value, from which of `slots` it is computed.
  std::vector<int> valuesMadeFrom(const Block &block, const std::set<int> &slots) const {
    std::vector<int> from(stage.values.size(), none);
    for (const program::Argument &argument : block.arguments) {
      if (slots.count(argument.slot))
        from[argument.value] = argument.slot;
    }
    for (const Instruction &instruction : block.instructions) {
      int joined = none;
      for (ValueId operand : instruction.operands) {
        if (from[operand] != none)
          joined = joined == none || joined == from[operand] ? from[operand] : several;
      }
      for (ValueId result : instruction.results)
        from[result] = joined;
    }
    return from;
  }

  /// A gradient or loss that update reads has been gathered before, what backward gathers is read
  /// by update, and somebody writes the loss.
  Status checkGathered() {
    for (const program::Argument &argument : stage.update.arguments) {
      if (gathersMicroBatches(stage.slots[argument.slot].role) &&
          !writes(Kind::Forward, argument.slot) && !writes(Kind::Backward, argument.slot))
        return reject(Kind::Update, argument.slot, "it is read, but no micro-batch writes it");
    }
    for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
      Role role = stage.slots[slot].role;
      if (role == Role::Gradient && isTraining && writes(Kind::Backward, int(slot)) &&
          !use[int(Kind::Update)].isRead[slot])
        return reject(Kind::Update, int(slot), "backward writes it, update does not read it");
      if (role == Role::Loss && !writes(Kind::Forward, int(slot)) &&
          !writes(Kind::Backward, int(slot)))
        return reject(Kind::Forward, int(slot), "no micro-batch writes it");
    }
    return Status::ok();
  }

  bool writes(Kind kind, int slot) const { return use[int(kind)].isWritten[slot]; }

  const Program &program;
  int stageIndex;
  bool isTraining;
  const Stage &stage;
  SlotUse use[3]; // by kind of block
};

/// Each forward and backward once, backward after its forward, then update.
Status checkActions(const Program &program, int stage) {
  std::vector<bool> hasForward(program.microBatches, false),
      hasBackward(program.microBatches, false);
  bool hasUpdate = false;
  std::string place = "stage " + std::to_string(stage) + ", schedule";
  for (const Action &action : actionsOf(program, stage)) {
    if (hasUpdate)
      return rejected(place, actionName(action) + " comes after update");
    if (action.kind == Kind::Update) {
      hasUpdate = true;
      continue;
    }
    std::vector<bool> &list = action.kind == Kind::Forward ? hasForward : hasBackward;
    if (list[action.microBatch])
      return rejected(place, actionName(action) + " comes twice");
    list[action.microBatch] = true;
    if (action.kind == Kind::Backward && !hasForward[action.microBatch])
      return rejected(place, actionName(action) + " comes before its forward");
  }
  for (int64_t m = 0; m < program.microBatches; ++m) {
    for (Kind kind : {Kind::Forward, Kind::Backward}) {
      if (!(kind == Kind::Forward ? hasForward : hasBackward)[m])
        return rejected(place, actionName({kind, m}) + " is missing");
    }
  }
  return hasUpdate ? Status::ok() : rejected(place, "update is missing");
}

} // namespace

Status checkDataflow(const Program &program) {
  // A Program may be for gradients only: then no stage has an update.
  bool isTraining =
      std::any_of(program.stages.begin(), program.stages.end(),
                  [](const Stage &stage) { return !stage.update.instructions.empty(); });
  for (int stage = 0; stage < program.numStages(); ++stage) {
    if (Status status = checkActions(program, stage); !status)
      return status;
    if (Status status = ValueChecker(program, stage).check(); !status)
      return status;
    if (Status status = SlotChecker(program, stage, isTraining).check(); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
