//===- Dataflow.cpp - Every read follows its write -------------------------===//

#include "runtime/abi/ObservedOps.h"
#include "runtime/verify/Clocks.h"
#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

#include <algorithm>
#include <map>
#include <optional>
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

/// The values of one stage: the places of their definitions and reads.
class ValueChecker {
public:
  ValueChecker(const Program &program, int stageIndex)
      : program(program), stageIndex(stageIndex), stage(program.stages[stageIndex]),
        isDefined(stage.values.size(), false), madeBy(stage.values.size(), -1) {}

  Status check() {
    for (BlockId id : stage.blocks()) {
      if (Status status = checkBlock(id); !status)
        return status;
    }
    return Status::ok();
  }

private:
  Status checkBlock(BlockId id) {
    const Block &block = stage.block(id);
    Clocks clocks(block);
    std::vector<bool> isHere(stage.values.size(), false), isRead(stage.values.size(), false);
    for (const program::Argument &argument : block.arguments) {
      if (isDefined[argument.value])
        return rejected(slotPlace(program, stageIndex, id, argument.slot),
                        "value " + percent(argument.value) + " is defined twice");
      isDefined[argument.value] = isHere[argument.value] = true;
    }
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      for (ValueId value : instruction.operands) {
        if (!isHere[value])
          return rejected(describe(program, stageIndex, id, int(i)),
                          "value " + percent(value) + " is read before it is written");
        if (int made = madeBy[value]; made >= 0 && !clocks.isDone(made, int(i)))
          return rejected(describe(program, stageIndex, id, int(i)),
                          "it reads value " + percent(value) + " without waiting for instruction " +
                              std::to_string(made) + ", which makes it on another stream");
        isRead[value] = true;
      }
      for (ValueId value : instruction.results) {
        if (isDefined[value])
          return rejected(describe(program, stageIndex, id, int(i)),
                          "value " + percent(value) + " is defined twice");
        isDefined[value] = isHere[value] = true;
        madeBy[value] = int(i);
      }
    }
    for (const program::BlockResult &result : block.results) {
      if (!isHere[result.value])
        return rejected(slotPlace(program, stageIndex, id, result.slot),
                        "value " + percent(result.value) + " is read before it is written");
      isRead[result.value] = true;
    }
    return checkUsed(id, isRead);
  }

  /// Every result must be read. A kernel outside update may have unread results, if one of its
  /// results is read.
  Status checkUsed(BlockId id, const std::vector<bool> &isRead) {
    const Block &block = stage.block(id);
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      auto isUnread = [&](ValueId value) { return !isRead[value]; };
      auto unread = std::find_if(instruction.results.begin(), instruction.results.end(), isUnread);
      bool mayHaveSome = id.kind != Kind::Update && instruction.kind == InstructionKind::Kernel;
      // A stage without gradients and losses takes part in sums over stages only for the others.
      if (id.kind == Kind::Update && isAmongStages(instruction) && !trains())
        continue;
      if (id.kind == Kind::Update && instruction.id == program::gradientNormId) // the run reads it
        continue;
      bool isWrong = mayHaveSome ? !instruction.results.empty() &&
                                       std::all_of(unread, instruction.results.end(), isUnread) &&
                                       unread == instruction.results.begin()
                                 : unread != instruction.results.end();
      if (isWrong)
        return rejected(describe(program, stageIndex, id, int(i)),
                        "its result " + percent(*unread) + " is never used");
    }
    return Status::ok();
  }

  /// Returns whether the stage contributes a gradient or a loss to the sums over stages.
  bool trains() const {
    return std::any_of(stage.slots.begin(), stage.slots.end(), [](const Slot &slot) {
      return slot.role == Role::Gradient || slot.role == Role::Loss;
    });
  }

  bool isAmongStages(const Instruction &instruction) const {
    const std::vector<program::AxisRef> &axes = instruction.comm.axes;
    return instruction.kind == InstructionKind::AllReduce && program.numStages() > 1 &&
           std::any_of(axes.begin(), axes.end(), [&](const program::AxisRef &axis) {
             return axis.axis == program.pipelineAxis;
           });
  }

  const Program &program;
  int stageIndex;
  const Stage &stage;
  std::vector<bool> isDefined;
  std::vector<int> madeBy; // by value: its defining instruction
};

/// Returns whether blocks of this kind may write slots of this role.
bool mayWrite(Kind kind, Role role) {
  switch (role) {
  case Role::Parameter:
  case Role::OptimizerState:
    return kind == Kind::Update;
  case Role::State:
    return kind == Kind::Forward;
  case Role::Residual:
    return kind == Kind::Forward || kind == Kind::Backward;
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

bool gathersMicroBatches(Role role) { return role == Role::Gradient || role == Role::Loss; }

/// The slots read and written by a block.
struct SlotUse {
  std::vector<bool> isRead, isWritten; // by slot

  SlotUse(const Stage &stage, BlockId id)
      : isRead(stage.slots.size(), false), isWritten(stage.slots.size(), false) {
    for (const program::Argument &argument : stage.block(id).arguments)
      isRead[argument.slot] = true;
    for (const program::BlockResult &result : stage.block(id).results)
      isWritten[result.slot] = true;
  }
};

/// The order in which a stage runs its blocks for one and the same micro-batch.
class BlockOrder {
public:
  BlockOrder(const Program &program, int stage) : numMicroBatches(program.microBatches) {
    int64_t place = 0;
    for (const Action &action : actionsOf(program, stage)) {
      std::vector<int64_t> &ofBlock = places[action];
      ofBlock.resize(size_t(numMicroBatches), -1);
      ofBlock[size_t(action.microBatch)] = place++;
    }
  }

  /// Returns whether `first` runs before `second` for every micro-batch of `second`.
  bool isBefore(BlockId first, BlockId second) {
    auto [found, isNew] = known.try_emplace({first, second}, true);
    if (!isNew)
      return found->second;
    auto a = places.find(first), b = places.find(second);
    bool isBefore = a != places.end() && b != places.end();
    for (size_t m = 0; isBefore && m < size_t(numMicroBatches); ++m)
      isBefore = b->second[m] < 0 || (a->second[m] >= 0 && a->second[m] < b->second[m]);
    return found->second = isBefore;
  }

private:
  int64_t numMicroBatches;
  std::map<BlockId, std::vector<int64_t>> places; // by micro-batch
  std::map<std::pair<BlockId, BlockId>, bool> known;
};

/// Checks how a stage's blocks use its slots. The order of blocks matters only for residuals.
class SlotChecker {
public:
  SlotChecker(const Program &program, int stageIndex, bool isTraining)
      : program(program), stageIndex(stageIndex), isTraining(isTraining),
        stage(program.stages[stageIndex]), order(program, stageIndex),
        writerOf(stage.slots.size()) {
    for (BlockId id : stage.blocks())
      use.emplace(id, SlotUse(stage, id));
  }

  Status check() {
    for (BlockId id : stage.blocks()) {
      if (Status status = findWriters(id); !status)
        return status;
    }
    for (BlockId id : stage.blocks()) {
      if (Status status = checkReads(id); !status)
        return status;
      if (Status status = checkWrites(id); !status)
        return status;
    }
    if (Status status = checkLastBackwards(); !status)
      return status;
    return checkGathered();
  }

private:
  Status reject(BlockId id, int slot, const std::string &why) {
    return rejected(slotPlace(program, stageIndex, id, slot), why);
  }

  /// Finds the writer of each residual; there must be only one.
  Status findWriters(BlockId id) {
    for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
      if (stage.slots[slot].role != Role::Residual || !use.at(id).isWritten[slot] ||
          !mayWrite(id.kind, Role::Residual))
        continue;
      if (writerOf[slot])
        return reject(id, int(slot), "it is written twice");
      writerOf[slot] = id;
    }
    return Status::ok();
  }

  Status checkReads(BlockId id) {
    for (const program::Argument &argument : stage.block(id).arguments) {
      Role role = stage.slots[argument.slot].role;
      if (id.kind == Kind::Update && livesAMicroBatch(role))
        return reject(id, argument.slot, "it lives for a micro-batch only, update has none");
      if (role == Role::Residual && !writerOf[argument.slot])
        return reject(id, argument.slot, "it is read, but nobody writes it");
      if (role == Role::Residual && !order.isBefore(*writerOf[argument.slot], id))
        return reject(id, argument.slot, "it is read before it is written");
      if (id.kind != Kind::Update && gathersMicroBatches(role) &&
          !use.at(id).isWritten[argument.slot])
        return reject(id, argument.slot, "it is read before all micro-batches are gathered");
    }
    return Status::ok();
  }

  Status checkWrites(BlockId id) {
    const Block &block = stage.block(id);
    std::set<int> written; // without accumulation
    std::set<std::pair<int, ValueId>> added;
    for (const program::BlockResult &result : block.results) {
      Role role = stage.slots[result.slot].role;
      if (!mayWrite(id.kind, role))
        return reject(id, result.slot, "this block may not write it");
      if (result.accumulate && !gathersMicroBatches(role))
        return reject(id, result.slot, "it is added to, which only gradients and the loss may be");
      if (result.accumulate && !added.insert({result.slot, result.value}).second)
        return reject(id, result.slot, percent(result.value) + " is added to it twice");
      if (!result.accumulate && !written.insert(result.slot).second)
        return reject(id, result.slot, "it is written twice");
    }
    for (const auto &[slot, value] : added) {
      if (written.count(slot))
        return reject(id, slot, "it is both written and added to");
    }
    return checkAccumulation(id);
  }

  /// The last micro-batch counts as the others do: the last backward of a chunk writes each
  /// gradient and loss as often as its backward.
  Status checkLastBackwards() {
    for (int chunk = 0; chunk < int(stage.chunks.size()); ++chunk) {
      if (!stage.chunks[size_t(chunk)].hasLastBackward())
        continue;
      std::map<int, int> more; // by slot: terms of backward beyond those of the last one
      for (const program::BlockResult &result : stage.chunks[size_t(chunk)].backward.results)
        ++more[result.slot];
      for (const program::BlockResult &result : stage.chunks[size_t(chunk)].lastBackward.results)
        --more[result.slot];
      for (const auto &[slot, count] : more)
        if (count != 0 && (count > 0 || numWriters(slot) > 1))
          return reject({Kind::LastBackward, chunk}, slot,
                        "backward and the last backward write it a different number of times");
    }
    return Status::ok();
  }

  /// Checks writes of gradients and the loss. A value that overwrites one must be computed from its
  /// old content, or be its only term in the step. The last backward may also write another slot,
  /// from gradients of all micro-batches. A value added to it must not be, because the old
  /// content would count twice.
  Status checkAccumulation(BlockId id) {
    const Block &block = stage.block(id);
    std::set<int> slots;
    for (const program::BlockResult &result : block.results) {
      if (gathersMicroBatches(stage.slots[result.slot].role) && use.at(id).isRead[result.slot])
        slots.insert(result.slot);
    }
    std::vector<int> madeFrom = valuesMadeFrom(block, slots);
    for (const program::BlockResult &result : block.results) {
      if (!gathersMicroBatches(stage.slots[result.slot].role))
        continue;
      bool isMadeFromIt =
          madeFrom[result.value] == result.slot || madeFrom[result.value] == several;
      if (result.accumulate && isMadeFromIt)
        return reject(id, result.slot, "what is added to it is made from it");
      if (result.accumulate && id.kind == Kind::LastBackward && madeFrom[result.value] != none)
        return reject(id, result.slot, "it is added to a gradient of all micro-batches");
      const bool isCompleted = id.kind == Kind::LastBackward && madeFrom[result.value] != none &&
                               numWriters(result.slot) == 1;
      if (id.kind != Kind::Update && !result.accumulate && !isMadeFromIt && !isCompleted) {
        if (program.microBatches > 1)
          return reject(id, result.slot, "it is overwritten, other micro-batches are lost");
        if (numWriters(result.slot) > 1)
          return reject(id, result.slot, "it is overwritten, the terms of other blocks are lost");
      }
    }
    return Status::ok();
  }

  /// The blocks that run for every micro-batch and write the slot.
  int numWriters(int slot) const {
    int writers = 0;
    for (const auto &[id, ofBlock] : use)
      writers += id.kind != Kind::Update && ofBlock.isWritten[slot];
    return writers;
  }

  static constexpr int none = -1, several = -2;

  /// Returns, per value, the slot of `slots` from which it is computed.
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

  /// Checks accumulation. A gradient or loss read by update must have been accumulated before. A
  /// gradient accumulated in backward must be read by update, and some block must write the loss.
  Status checkGathered() {
    for (const program::Argument &argument : stage.update.arguments) {
      if (gathersMicroBatches(stage.slots[argument.slot].role) && !gathers(argument.slot))
        return reject(Kind::Update, argument.slot, "it is read, but no micro-batch writes it");
    }
    for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
      Role role = stage.slots[slot].role;
      if (role == Role::Gradient && isTraining && gathers(int(slot)) &&
          !use.at(Kind::Update).isRead[slot] && !isPassedOn(int(slot)))
        return reject(Kind::Update, int(slot), "backward writes it, update does not read it");
      if (role == Role::Loss && !gathers(int(slot)))
        return reject(Kind::Forward, int(slot), "no micro-batch writes it");
    }
    return Status::ok();
  }

  /// Returns whether a block before update writes the slot.
  bool gathers(int slot) const { return numWriters(slot) > 0; }

  /// Returns whether a last backward computes another gradient slot from this one.
  bool isPassedOn(int slot) const {
    for (const auto &[id, ofBlock] : use) {
      if (id.kind != Kind::LastBackward || !ofBlock.isRead[size_t(slot)])
        continue;
      const Block &block = stage.block(id);
      const std::vector<int> madeFrom = valuesMadeFrom(block, {slot});
      for (const program::BlockResult &result : block.results)
        if (result.slot != slot && stage.slots[size_t(result.slot)].role == Role::Gradient &&
            madeFrom[size_t(result.value)] == slot)
          return true;
    }
    return false;
  }

  const Program &program;
  int stageIndex;
  bool isTraining;
  const Stage &stage;
  std::map<BlockId, SlotUse> use;
  BlockOrder order;
  std::vector<std::optional<BlockId>> writerOf; // by slot, for residuals
};

/// Checks the actions of a stage: each forward, backward and, if backward is split, wgrad runs
/// once, in this order, then update.
class ActionChecker {
public:
  ActionChecker(const Program &program, int stage)
      : program(program), stage(stage), place("stage " + std::to_string(stage) + ", schedule"),
        numChunks(program.stages[stage].chunks.size()) {}

  Status check() {
    bool hasUpdate = false, hasWeight = isParted();
    for (const Action &action : actionsOf(program, stage)) {
      if (hasUpdate)
        return rejected(place, actionName(action) + " comes after update");
      hasUpdate = action.kind == Kind::Update;
      hasWeight |= action.kind == Kind::Weight;
      if (Status status = hasUpdate ? Status::ok() : take(action); !status)
        return status;
    }
    for (int64_t m = 0; m < program.microBatches; ++m)
      for (int chunk = 0; chunk < int(numChunks); ++chunk)
        for (Kind kind : {Kind::Forward, Kind::Backward, Kind::Weight})
          if ((kind != Kind::Weight || hasWeight) && !taken(kind, m, chunk))
            return rejected(place, actionName({kind, m, chunk}) + " is missing");
    return hasUpdate ? Status::ok() : rejected(place, "update is missing");
  }

private:
  /// Returns whether backward is split: some weight (wgrad) block is not empty.
  bool isParted() const {
    for (const program::Chunk &chunk : program.stages[stage].chunks)
      if (!chunk.weight.instructions.empty() || !chunk.weight.results.empty())
        return true;
    return false;
  }

  std::vector<bool>::reference taken(Kind kind, int64_t microBatch, int chunk) {
    std::vector<bool> &list = done[int(kind)];
    list.resize(size_t(program.microBatches) * numChunks, false);
    return list[size_t(microBatch) * numChunks + size_t(chunk)];
  }

  Status take(const Action &action) {
    auto before = action.kind == Kind::Weight ? Kind::Backward : Kind::Forward;
    const bool isLast = action.kind == Kind::LastBackward;
    const Kind kind = isLast ? Kind::Backward : action.kind;
    if (taken(kind, action.microBatch, action.chunk))
      return rejected(place, actionName(action) + " comes twice");
    if (kind != Kind::Forward && !taken(before, action.microBatch, action.chunk))
      return rejected(place, actionName(action) + " comes before its " + std::string(name(before)));
    for (int64_t m = 0; isLast && m < action.microBatch; ++m)
      if (!taken(kind, m, action.chunk))
        return rejected(place, actionName(action) + " comes before " +
                                   actionName({kind, m, action.chunk}));
    taken(kind, action.microBatch, action.chunk) = true;
    return Status::ok();
  }

  const Program &program;
  int stage;
  std::string place;
  size_t numChunks;
  std::vector<bool> done[schedule::numActionKinds];
};

} // namespace

Status checkDataflow(const Program &program) {
  // A Program may compute gradients only; then all its updates are empty.
  bool isTraining =
      std::any_of(program.stages.begin(), program.stages.end(),
                  [](const Stage &stage) { return !stage.update.instructions.empty(); });
  for (int stage = 0; stage < program.numStages(); ++stage) {
    if (Status status = ActionChecker(program, stage).check(); !status)
      return status;
    if (Status status = ValueChecker(program, stage).check(); !status)
      return status;
    if (Status status = SlotChecker(program, stage, isTraining).check(); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
