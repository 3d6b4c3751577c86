//===- PlanMemory.cpp - Memory layout of a Program --------------------------===//

#include "codegen/PlanMemory.h"

#include "runtime/abi/Order.h"
#include "runtime/abi/Region.h"
#include "runtime/memory/Arena.h"

#include <algorithm>
#include <map>
#include <set>

namespace tbc {

using memory::alignedBytes;
using memory::Lifetime;
using program::Block;
using program::BlockId;
using program::BlockResult;
using program::Instruction;
using program::Location;
using program::MemoryPlan;
using program::Program;
using program::Stage;
using program::ValueId;

namespace {

/// Slots written and read by the same blocks, and the lifetimes of their instances.
struct Group {
  std::vector<int> slots;
  int64_t bytes = 0;
  std::vector<Lifetime> instances; // by micro-batch; times are action indices
};

class StagePlanner {
public:
  StagePlanner(const Program &program, int stageIndex, const MayOverwriteFn &mayOverwrite)
      : stage(program.stages[stageIndex]), stageIndex(stageIndex), mayOverwrite(mayOverwrite),
        microBatches(program.microBatches), actions(actionsOf(program, stageIndex)) {
    plan.slots.resize(stage.slots.size());
    plan.values.resize(stage.values.size());
  }

  MemoryPlan run() {
    placeLastingSlots();
    int64_t lasting = plan.arenaBytes;
    for (Location location : {Location::Device, Location::Host})
      placeFrames(findGroups(location), arenaBytes(location));
    int64_t frames = plan.arenaBytes;
    for (BlockId id : stage.blocks()) {
      const Block &block = stage.block(id);
      memory::StreamOrder order(program::streamStepsOf(block));
      spans = program::regionSpans(block);
      placeInside(block);
      placeInSlots(id, order);
      placeValues(block, order, id.kind == schedule::Action::Kind::Update ? lasting : frames);
    }
    return std::move(plan);
  }

private:
  int64_t slotBytes(int slot) const {
    return alignedBytes(program::sizeBytes(stage.slots[slot].type));
  }

  int64_t &arenaBytes(Location location) {
    return location == Location::Host ? plan.hostArenaBytes : plan.arenaBytes;
  }

  void placeLastingSlots() {
    for (size_t i = 0; i < stage.slots.size(); ++i) {
      if (livesAMicroBatch(stage.slots[i].role))
        continue;
      int64_t &bytes = arenaBytes(stage.slots[i].location);
      plan.slots[i].offset = bytes;
      bytes += slotBytes(int(i));
    }
  }

  //===--------------------------------------------------------------------===//
  // Frames
  //===--------------------------------------------------------------------===//

  std::vector<Group> findGroups(Location location) {
    std::vector<std::set<BlockId>> users(stage.slots.size());
    for (BlockId id : stage.blocks()) {
      for (const program::Argument &argument : stage.block(id).arguments)
        users[argument.slot].insert(id);
      for (const BlockResult &result : stage.block(id).results)
        users[result.slot].insert(id);
    }
    std::map<std::set<BlockId>, Group> groups;
    for (size_t i = 0; i < stage.slots.size(); ++i) {
      if (!livesAMicroBatch(stage.slots[i].role) || stage.slots[i].location != location)
        continue;
      Group &group = groups[users[i]];
      plan.slots[i].offset = group.bytes;
      group.bytes += slotBytes(int(i));
      group.slots.push_back(int(i));
    }
    std::vector<Group> result;
    for (auto &[blocks, group] : groups) {
      group.instances.assign(size_t(microBatches), {group.bytes, int64_t(actions.size()), -1});
      for (size_t a = 0; a < actions.size(); ++a) {
        if (!blocks.count(actions[a]))
          continue;
        Lifetime &instance = group.instances[size_t(actions[a].microBatch)];
        instance.first = std::min(instance.first, int64_t(a));
        instance.last = std::max(instance.last, int64_t(a));
      }
      result.push_back(std::move(group));
    }
    return result;
  }

  void placeFrames(const std::vector<Group> &groups, int64_t &arenaBytes) {
    std::vector<std::vector<Lifetime>> frames;
    for (const Group &group : groups)
      frames.push_back(group.instances);
    memory::FrameLayout layout = memory::layOutFrames(frames);
    for (size_t f = 0; f < groups.size(); ++f) {
      for (int slot : groups[f].slots)
        plan.slots[slot].frame = int(plan.frames.size());
      for (int64_t &offset : layout.offsets[f])
        offset += arenaBytes;
      plan.frames.push_back({groups[f].bytes, std::move(layout.offsets[f])});
    }
    arenaBytes += layout.bytes;
  }

  //===--------------------------------------------------------------------===//
  // Values
  //===--------------------------------------------------------------------===//

  /// Values inside of regions take no bytes.
  void placeInside(const Block &block) {
    for (const program::Region &region : block.regions)
      for (ValueId value : program::valuesInside(block, region))
        plan.values[value].offset = program::ValuePlace::inside;
  }

  /// Whether instruction `at` may compute `result` over the argument that `reader` reads: the
  /// reader is done before, or both are the same kernel and that works element by element.
  bool isFreeFor(BlockId id, const memory::StreamOrder &order, int reader, ValueId argument, int at,
                 ValueId result) const {
    if (spans[reader] != spans[at])
      return order.isBefore(spans[reader].second, spans[at].first);
    const Block &block = stage.block(id);
    for (int i = spans[at].first; i <= spans[at].second; ++i)
      if (!mayOverwriteOperands(block.instructions[i]))
        return false;
    return reader <= at && (!mayOverwrite || mayOverwrite(stageIndex, id, at, result, argument));
  }

  /// Places arguments, and results that can be computed in their slot.
  void placeInSlots(BlockId id, const memory::StreamOrder &order) {
    const Block &block = stage.block(id);
    struct Reads {
      std::set<std::pair<int, ValueId>> instructions; // readers of a slot's arguments
      bool isPassedOn = false;
    };
    std::map<int, Reads> reads; // by slot
    std::map<ValueId, int> slotOf, defined;
    for (const program::Argument &argument : block.arguments) {
      plan.values[argument.value].slot = argument.slot;
      slotOf[argument.value] = argument.slot;
      reads[argument.slot];
    }
    for (int i = 0; i < int(block.instructions.size()); ++i) {
      for (ValueId value : block.instructions[i].operands)
        if (auto found = slotOf.find(value); found != slotOf.end())
          reads[found->second].instructions.insert({i, value});
      for (ValueId value : block.instructions[i].results)
        defined[value] = i;
    }
    for (const BlockResult &result : block.results)
      if (auto found = slotOf.find(result.value); found != slotOf.end())
        reads[found->second].isPassedOn = true;
    for (const BlockResult &result : block.results) {
      auto definition = defined.find(result.value);
      if (result.accumulate || definition == defined.end() || plan.values[result.value].slot >= 0)
        continue;
      auto read = reads.find(result.slot);
      int at = definition->second;
      auto isDone = [&](const std::pair<int, ValueId> &reader) {
        return isFreeFor(id, order, reader.first, reader.second, at, result.value);
      };
      bool isFree = read == reads.end() || (!read->second.isPassedOn &&
                                            std::all_of(read->second.instructions.begin(),
                                                        read->second.instructions.end(), isDone));
      if (isFree)
        plan.values[result.value].slot = result.slot;
    }
  }

  void placeValues(const Block &block, const memory::StreamOrder &order, int64_t begin) {
    std::map<ValueId, size_t> numbers;
    std::vector<ValueId> values;
    std::vector<Lifetime> lifetimes;
    auto extend = [&](ValueId value, int64_t time) {
      if (auto found = numbers.find(value); found != numbers.end())
        lifetimes[found->second].last = std::max(lifetimes[found->second].last, time);
    };
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      const auto [first, last] = spans[i];
      for (ValueId value : instruction.operands)
        extend(value, order.settled(last) - 1);
      for (ValueId value : instruction.results) {
        if (plan.values[value].slot >= 0 || plan.values[value].isInside())
          continue;
        numbers[value] = values.size();
        values.push_back(value);
        lifetimes.push_back({program::sizeBytes(stage.values[value]), int64_t(first),
                             int64_t(order.settled(last)) - 1});
      }
    }
    for (const program::Region &region : block.regions)
      for (ValueId value : operandsOfProductBefore(block, region))
        extend(value, order.settled(region.first + region.count - 1) - 1);
    std::vector<int> times = resultTimes(stage, block);
    for (size_t r = 0; r < times.size(); ++r)
      extend(block.results[r].value, times[r] < 0 || times[r] == int(block.instructions.size())
                                         ? times[r]
                                         : order.settled(spans[times[r]].second) - 1);
    memory::Layout layout = memory::assignOffsets(lifetimes);
    for (size_t i = 0; i < values.size(); ++i)
      plan.values[values[i]].offset = begin + layout.offsets[i];
    plan.arenaBytes = std::max(plan.arenaBytes, begin + layout.bytes);
  }

  /// Returns the operands of a matmul right before the region that reads its product. A library may
  /// execute both in one call, where the region begins (runtime/cuda/Epilogues.h).
  static std::vector<ValueId> operandsOfProductBefore(const Block &block,
                                                      const program::Region &region) {
    if (region.first == 0)
      return {};
    const Instruction &before = block.instructions[region.first - 1];
    if (before.op != program::matmulOp)
      return {};
    const std::vector<ValueId> read = program::regionValues(block, region).operands;
    bool reads = std::find(read.begin(), read.end(), before.results[0]) != read.end();
    return reads ? before.operands : std::vector<ValueId>();
  }

  const Stage &stage;
  int stageIndex;
  const MayOverwriteFn &mayOverwrite;
  std::vector<std::pair<int, int>> spans; // of the current block (program::regionSpans)
  int64_t microBatches;
  std::vector<schedule::Action> actions;
  MemoryPlan plan;
};

} // namespace

void planMemory(Program &program, const MayOverwriteFn &mayOverwrite) {
  for (int stage = 0; stage < program.numStages(); ++stage)
    program.stages[stage].memory = StagePlanner(program, stage, mayOverwrite).run();
}

} // namespace tbc
