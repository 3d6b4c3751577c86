//===- Memory.cpp - No two live buffers share bytes ------------------------===//
//
// Lifetimes are derived from the blocks and the schedule. From the memory plan, only offsets are
// used.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Region.h"
#include "runtime/verify/Clocks.h"
#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

#include <algorithm>
#include <map>
#include <set>

namespace tbc::verify {
namespace {

using program::Block;
using program::Location;
using program::MemoryPlan;
using program::Program;
using program::Stage;
using program::ValueId;
using schedule::Action;

/// The owner of some bytes: a slot outliving a micro-batch, an instance of a frame, or a value.
/// Values lie on the device; host data is always in slots (checkWellFormed).
struct Owner {
  int slot = -1;
  int frame = -1;
  int64_t microBatch = 0;
  ValueId value = -1;
};

/// The set of bytes in use, each with one owner.
class Taken {
public:
  /// Returns the owner of a byte in [begin, end), or null.
  const Owner *find(int64_t begin, int64_t end) const {
    auto after = owners.lower_bound(begin);
    if (after != owners.end() && after->first < end)
      return &after->second.second;
    if (after != owners.begin() && std::prev(after)->second.first > begin)
      return &std::prev(after)->second.second;
    return nullptr;
  }
  /// Takes the bytes, or returns the owner of a byte already taken.
  const Owner *take(int64_t begin, int64_t end, const Owner &owner) {
    if (begin == end)
      return nullptr;
    const Owner *other = find(begin, end);
    if (!other)
      owners.emplace(begin, std::make_pair(end, owner));
    return other;
  }
  void give(int64_t begin) { owners.erase(begin); }

private:
  std::map<int64_t, std::pair<int64_t, Owner>> owners; // by first byte
};

std::string percent(ValueId value) { return "%" + std::to_string(value); }

class MemoryChecker {
public:
  MemoryChecker(const Program &program, int stageIndex)
      : program(program), stageIndex(stageIndex), stage(program.stages[stageIndex]),
        plan(stage.memory), actions(actionsOf(program, stageIndex)),
        definedAt(stage.values.size(), -1), argumentSlot(stage.values.size(), -1),
        lastUse(stage.values.size(), never()) {}

  Status check() {
    for (BlockId id : stage.blocks()) {
      spans = program::regionSpans(stage.block(id));
      if (Status status = checkInside(id); !status)
        return status;
      findLifetimes(stage.block(id));
      Clocks clocks(stage.block(id));
      if (Status status = checkInSlots(id, clocks); !status)
        return status;
      if (Status status = checkBlock(id, clocks); !status)
        return status;
      if (Status status = checkRegions(id); !status)
        return status;
    }
    if (Status status = checkFrames(); !status)
      return status;
    return checkSchedule();
  }

private:
  int64_t bytesOf(ValueId value) const { return program::sizeBytes(stage.values[value]); }

  std::string name(const Owner &owner) const {
    if (owner.value >= 0)
      return "value " + percent(owner.value);
    const program::Slot &slot = stage.slots[owner.slot];
    std::string text = std::string(program::name(slot.role)) + " slot \"" + slot.name + "\"";
    return owner.frame < 0 ? text : text + " of micro-batch " + std::to_string(owner.microBatch);
  }

  /// Finds the definition and last use of each value of the block. Each value belongs to one block.
  /// The instructions of a region count as its last one for uses, and as its first for definitions.
  void findLifetimes(const Block &block) {
    for (const program::Argument &argument : block.arguments)
      argumentSlot[argument.value] = argument.slot;
    for (int i = 0; i < int(block.instructions.size()); ++i) {
      int stream = int(block.instructions[i].stream);
      for (ValueId value : block.instructions[i].operands)
        lastUse[value][stream] = spans[i].second;
      for (ValueId value : block.instructions[i].results) {
        definedAt[value] = spans[i].first;
        lastUse[value][stream] = spans[i].second;
      }
    }
  }

  /// Checks that values without a place are made and read inside of one region.
  Status checkInside(BlockId id) const {
    const Block &block = stage.block(id);
    std::set<ValueId> inside;
    for (const program::Region &region : block.regions)
      for (ValueId value : program::valuesInside(block, region))
        inside.insert(value);
    for (int i = 0; i < int(block.instructions.size()); ++i)
      for (ValueId value : block.instructions[i].results)
        if (plan.values[value].isInside() && !inside.count(value))
          return rejected(describe(program, stageIndex, id, i),
                          "the memory plan has no place for value " + percent(value) +
                              ", which is read outside of its region");
    return Status::ok();
  }

  static Clock never() {
    Clock clock;
    clock.fill(-1);
    return clock;
  }

  /// Returns an instruction of `uses` at or after `index`, or one possibly still running when
  /// `index` begins; -1 if there is neither.
  static int lastAtWork(const Clock &uses, int index, const Clocks &clocks) {
    for (int use : uses)
      if (use >= index || (use >= 0 && !clocks.isDone(use, index)))
        return use;
    return -1;
  }

  //===--------------------------------------------------------------------===//
  // Within a block
  //===--------------------------------------------------------------------===//

  /// How a block uses the initial content of a slot.
  struct SlotReads {
    Clock last = never(); // instructions
    bool isPassedOn = false;
    std::vector<ValueId> written; // values written to the slot
  };

  /// Checks values in slots: arguments, and results computed in place.
  Status checkInSlots(BlockId id, const Clocks &clocks) {
    const Block &block = stage.block(id);
    std::vector<SlotReads> reads(stage.slots.size());
    for (const program::Argument &argument : block.arguments) {
      if (plan.values[argument.value].slot != argument.slot)
        return rejected(slotPlace(program, stageIndex, id, argument.slot),
                        "the memory plan has its value " + percent(argument.value) + " elsewhere");
      SlotReads &slot = reads[argument.slot];
      for (int s = 0; s < program::numStreams; ++s)
        slot.last[s] = std::max(slot.last[s], lastUse[argument.value][s]);
    }
    for (const program::BlockResult &result : block.results) {
      if (int from = argumentSlot[result.value]; from >= 0)
        reads[from].isPassedOn = true;
      if (!result.accumulate)
        reads[result.slot].written.push_back(result.value);
    }
    for (const program::BlockResult &result : block.results) {
      int from = argumentSlot[result.value];
      if (from < 0 || from == result.slot)
        continue;
      for (ValueId other : reads[from].written)
        if (other != result.value)
          return rejected(slotPlace(program, stageIndex, id, from),
                          "it is written and what it held passed on; the memory plan has no place "
                          "for both");
    }
    for (int i = 0; i < int(block.instructions.size()); ++i)
      for (ValueId value : block.instructions[i].results)
        if (int slot = plan.values[value].slot; slot >= 0)
          if (Status status = checkComputedIn(id, i, value, slot, reads[slot], clocks); !status)
            return status;
    return Status::ok();
  }

  /// Whether every instruction of a region may overwrite its operands.
  bool mayOverwriteAll(const Block &block, std::pair<int, int> span) const {
    for (int i = span.first; i <= span.second; ++i)
      if (!mayOverwriteOperands(block.instructions[i]))
        return false;
    return true;
  }

  /// Returns the last instruction of a region that reads what a slot held; -1 if there is none.
  int lastReadInRegion(BlockId id, int slot, std::pair<int, int> span) const {
    for (int i = span.second; i >= span.first; --i)
      for (ValueId value : stage.block(id).instructions[i].operands)
        if (argumentSlot[value] == slot)
          return i;
    return -1;
  }

  Status checkComputedIn(BlockId id, int index, ValueId value, int slot, const SlotReads &reads,
                         const Clocks &clocks) const {
    auto reject = [&](const std::string &why) {
      return rejected(describe(program, stageIndex, id, index), "the memory plan has value " +
                                                                    percent(value) + " in " +
                                                                    name(Owner{slot}) + ", " + why);
    };
    if (std::count(reads.written.begin(), reads.written.end(), value) == 0)
      return reject("to which it is not written");
    Clock others = reads.last;
    bool readsItself = false;
    for (int &reader : others)
      if (reader == spans[index].second) {
        reader = -1; // earlier instructions of its stream are done
        readsItself = true;
      }
    if (reads.isPassedOn || lastAtWork(others, spans[index].first, clocks) >= 0 ||
        (readsItself && lastReadInRegion(id, slot, spans[index]) > index))
      return reject("of which what it held is still read");
    if (readsItself && !mayOverwriteAll(stage.block(id), spans[index]))
      return reject("which the instruction reads and may not overwrite");
    return Status::ok();
  }

  bool hasBytes(ValueId value) const {
    return plan.values[value].slot < 0 && !plan.values[value].isInside() && bytesOf(value) > 0;
  }

  /// Returns the results that take their bytes when instruction `index` begins: its own, or at the
  /// first of a region those of all its instructions.
  std::vector<ValueId> resultsAt(const Block &block, int index) const {
    std::vector<ValueId> values;
    if (spans[index].first != index)
      return values;
    for (int i = index; i <= spans[index].second; ++i)
      values.insert(values.end(), block.instructions[i].results.begin(),
                    block.instructions[i].results.end());
    return values;
  }

  /// Checks values live at the same time, and collects the bytes used by any value of the block.
  Status checkBlock(BlockId id, const Clocks &clocks) {
    const Block &block = stage.block(id);
    std::vector<int> times = resultTimes(stage, block);
    size_t end = block.instructions.size();
    for (size_t r = 0; r < times.size(); ++r) {
      if (times[r] < 0 || definedAt[block.results[r].value] < 0)
        continue;
      bool isAtEnd = times[r] == int(end);
      int &last = lastUse[block.results[r].value]
                         [isAtEnd ? 0 : int(block.instructions[size_t(times[r])].stream)];
      last = std::max(last, isAtEnd ? times[r] : spans[size_t(times[r])].second);
    }
    Taken taken;
    std::vector<std::pair<int64_t, int64_t>> &extents = extentsOf[id];
    for (size_t i = 0; i < end; ++i) {
      for (ValueId value : resultsAt(block, int(i))) {
        if (!hasBytes(value))
          continue;
        int64_t begin = plan.values[value].offset;
        Owner owner;
        owner.value = value;
        while (const Owner *other = taken.take(begin, begin + bytesOf(value), owner)) {
          int use = lastAtWork(lastUse[other->value], int(i), clocks);
          if (use < 0) {
            taken.give(plan.values[other->value].offset);
            continue;
          }
          return rejected(describe(program, stageIndex, id, int(i)),
                          "value " + percent(value) + " shares bytes with " + name(*other) +
                              (use >= int(i) ? ", which is live"
                                             : ", without waiting for instruction " +
                                                   std::to_string(use) + ", which uses that"));
        }
        extents.push_back({begin, begin + bytesOf(value)});
      }
    }
    join(extents);
    return Status::ok();
  }

  /// Checks regions. A compiled kernel executes a region as a whole, so a value dying inside it
  /// must not share its bytes with a result of the region.
  Status checkRegions(BlockId id) const {
    const Block &block = stage.block(id);
    for (const program::Region &region : block.regions)
      for (const program::SharedPlace &shared : sharedPlaces(stage, block, region))
        if (!shared.isSame)
          return rejected(describe(program, stageIndex, id, region.first),
                          "of the region that begins here, result " + percent(shared.result) +
                              " shares bytes with " + percent(shared.other) +
                              ", which a kernel needs to its end");
    return Status::ok();
  }

  /// Sorts the extents, and merges touching or overlapping ones.
  static void join(std::vector<std::pair<int64_t, int64_t>> &extents) {
    std::sort(extents.begin(), extents.end());
    size_t count = 0;
    for (const auto &extent : extents) {
      if (count > 0 && extent.first <= extents[count - 1].second)
        extents[count - 1].second = std::max(extents[count - 1].second, extent.second);
      else
        extents[count++] = extent;
    }
    extents.resize(count);
  }

  //===--------------------------------------------------------------------===//
  // Among blocks
  //===--------------------------------------------------------------------===//

  /// Slots of one frame must not share bytes.
  Status checkFrames() {
    std::vector<Taken> frames(plan.frames.size());
    slotsOf.resize(plan.frames.size());
    for (size_t i = 0; i < stage.slots.size(); ++i) {
      const program::SlotPlace &place = plan.slots[i];
      if (place.frame < 0)
        continue;
      slotsOf[place.frame].push_back(int(i));
      int64_t end = place.offset + program::sizeBytes(stage.slots[i].type);
      Owner owner{int(i), place.frame};
      if (const Owner *other = frames[place.frame].take(place.offset, end, owner))
        return rejected("stage " + std::to_string(stageIndex) + ", memory plan",
                        name(owner) + " shares bytes with " + name(*other));
    }
    return Status::ok();
  }

  /// Returns, by frame and micro-batch, the first and the last action on the frame.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> frameLives() const {
    std::map<BlockId, std::vector<int>> framesOf;
    for (BlockId id : stage.blocks()) {
      std::set<int> frames;
      for (const program::Argument &argument : stage.block(id).arguments)
        frames.insert(plan.slots[argument.slot].frame);
      for (const program::BlockResult &result : stage.block(id).results)
        frames.insert(plan.slots[result.slot].frame);
      frames.erase(-1);
      framesOf[id].assign(frames.begin(), frames.end());
    }
    std::vector<std::vector<std::pair<int64_t, int64_t>>> lives(plan.frames.size());
    for (auto &life : lives)
      life.assign(size_t(program.microBatches), {-1, -1});
    for (size_t a = 0; a < actions.size(); ++a)
      for (int frame : framesOf[actions[a]]) {
        auto &[first, last] = lives[frame][size_t(actions[a].microBatch)];
        first = first < 0 ? int64_t(a) : first;
        last = int64_t(a);
      }
    return lives;
  }

  Status checkSchedule() {
    for (Location location : {Location::Device, Location::Host})
      if (Status status = checkSchedule(location); !status)
        return status;
    return Status::ok();
  }

  /// Walks the schedule for one arena.
  Status checkSchedule(Location location) {
    Taken taken;
    for (size_t i = 0; i < stage.slots.size(); ++i) {
      if (plan.slots[i].frame >= 0 || stage.slots[i].location != location)
        continue;
      int64_t begin = plan.slots[i].offset;
      Owner owner{int(i)};
      if (const Owner *other =
              taken.take(begin, begin + program::sizeBytes(stage.slots[i].type), owner))
        return rejected("stage " + std::to_string(stageIndex) + ", memory plan",
                        name(owner) + " shares bytes with " + name(*other));
    }
    std::vector<std::vector<Owner>> begins(actions.size()), ends(actions.size());
    auto lives = frameLives();
    for (size_t f = 0; f < lives.size(); ++f)
      for (size_t m = 0; m < lives[f].size(); ++m)
        if (auto [first, last] = lives[f][m];
            first >= 0 && plan.frames[f].bytes > 0 && isAt(f, location)) {
          begins[size_t(first)].push_back({slotsOf[f][0], int(f), int64_t(m)});
          ends[size_t(last)].push_back(begins[size_t(first)].back());
        }
    for (size_t a = 0; a < actions.size(); ++a) {
      for (const Owner &owner : begins[a])
        if (Status status = begin(taken, actions[a], owner); !status)
          return status;
      if (location == Location::Device)
        for (auto [first, end] : extentsOf[actions[a]])
          if (taken.find(first, end))
            return reject(taken, actions[a]);
      for (const Owner &owner : ends[a])
        taken.give(offsetOf(owner));
    }
    return Status::ok();
  }

  bool isAt(size_t frame, Location location) const {
    return !slotsOf[frame].empty() && stage.slots[slotsOf[frame][0]].location == location;
  }

  int64_t offsetOf(const Owner &instance) const {
    const std::vector<int64_t> &offsets = plan.frames[instance.frame].offsets;
    return offsets[size_t(instance.microBatch) % offsets.size()];
  }

  Status begin(Taken &taken, const Action &action, const Owner &owner) const {
    int64_t first = offsetOf(owner);
    const Owner *other = taken.take(first, first + plan.frames[owner.frame].bytes, owner);
    if (!other)
      return Status::ok();
    return rejected(describe(program, stageIndex, action) + ", micro-batch " +
                        std::to_string(action.microBatch),
                    "the frame of " + name(owner) + " shares bytes with " +
                        (other->frame < 0 ? "" : "the frame of ") + name(*other) +
                        ", which is live");
  }

  /// Returns the error for a value of the action's block that shares bytes with a live buffer.
  Status reject(const Taken &taken, const Action &action) const {
    const Block &block = stage.block(action);
    for (size_t i = 0; i < block.instructions.size(); ++i)
      for (ValueId value : block.instructions[i].results) {
        int64_t begin = plan.values[value].offset;
        if (!hasBytes(value))
          continue;
        if (const Owner *other = taken.find(begin, begin + bytesOf(value)))
          return rejected(describe(program, stageIndex, action, int(i)) + ", micro-batch " +
                              std::to_string(action.microBatch),
                          "value " + percent(value) + " shares bytes with " +
                              (other->frame < 0 ? "" : "the frame of ") + name(*other) +
                              ", which is live");
      }
    return Status::ok();
  }

  const Program &program;
  int stageIndex;
  const Stage &stage;
  const MemoryPlan &plan;
  std::vector<Action> actions;
  std::vector<std::pair<int, int>> spans;   // of the current block (regionSpans)
  std::vector<int> definedAt, argumentSlot; // by value
  std::vector<Clock> lastUse;               // by value; numbered as in resultTimes
  std::map<BlockId, std::vector<std::pair<int64_t, int64_t>>> extentsOf;
  std::vector<std::vector<int>> slotsOf; // by frame
};

} // namespace

Status checkMemory(const Program &program) {
  for (int stage = 0; stage < program.numStages(); ++stage) {
    if (program.stages[stage].memory.isEmpty())
      continue;
    if (Status status = MemoryChecker(program, stage).check(); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
