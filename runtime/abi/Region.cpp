//===- Region.cpp - The operands and results of a compiled region -----------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Region.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace tbc::program {

RegionValues regionValues(const Block &block, const Region &region) {
  RegionValues values;
  std::set<ValueId> inside, read, isResult;
  for (int i = region.first; i < region.first + region.count; ++i) {
    const Instruction &instruction = block.instructions[i];
    for (ValueId value : instruction.operands)
      if (!inside.count(value) && read.insert(value).second)
        values.operands.push_back(value);
    inside.insert(instruction.results.begin(), instruction.results.end());
  }
  for (size_t i = size_t(region.first + region.count); i < block.instructions.size(); ++i)
    for (ValueId value : block.instructions[i].operands)
      if (inside.count(value))
        isResult.insert(value);
  for (const BlockResult &result : block.results)
    if (inside.count(result.value))
      isResult.insert(result.value);
  for (int i = region.first; i < region.first + region.count; ++i)
    for (ValueId value : block.instructions[i].results)
      if (isResult.count(value))
        values.results.push_back(value);
  return values;
}

std::vector<ValueId> valuesInside(const Block &block, const Region &region) {
  const std::vector<ValueId> results = regionValues(block, region).results;
  std::vector<ValueId> inside;
  for (int i = region.first; i < region.first + region.count; ++i)
    for (ValueId value : block.instructions[i].results)
      if (std::find(results.begin(), results.end(), value) == results.end())
        inside.push_back(value);
  return inside;
}

std::vector<std::pair<int, int>> regionSpans(const Block &block) {
  std::vector<std::pair<int, int>> spans;
  for (int i = 0; i < int(block.instructions.size()); ++i)
    spans.push_back({i, i});
  for (const Region &region : block.regions)
    for (int i = region.first; i < region.first + region.count; ++i)
      spans[i] = {region.first, region.first + region.count - 1};
  return spans;
}

namespace {

/// The bytes of a value. Offsets count from the frame for a slot of a frame, and otherwise from the
/// arena. Frames and the values of blocks never share bytes while a block runs.
struct Extent {
  int frame = -1;
  int64_t begin = 0, end = 0;

  bool overlaps(const Extent &o) const {
    return frame == o.frame && begin < o.end && o.begin < end;
  }
  bool operator==(const Extent &o) const {
    return std::tie(frame, begin, end) == std::tie(o.frame, o.begin, o.end);
  }
};

Extent slotExtent(const Stage &stage, int slot, int64_t bytes) {
  const SlotPlace &place = stage.memory.slots[slot];
  return {place.frame, place.offset, place.offset + bytes};
}

Extent extentOf(const Stage &stage, ValueId value) {
  const ValuePlace &place = stage.memory.values[value];
  int64_t bytes = place.isInside() ? 0 : sizeBytes(stage.values[value]);
  return place.slot < 0 ? Extent{-1, place.offset, place.offset + bytes}
                        : slotExtent(stage, place.slot, bytes);
}

} // namespace

std::vector<SharedPlace> sharedPlaces(const Stage &stage, const Block &block,
                                      const Region &region) {
  std::vector<SharedPlace> shared;
  if (stage.memory.isEmpty())
    return shared;
  RegionValues values = regionValues(block, region);
  // A value that exists before the region and is written to a slot while the region runs must stay
  // intact until the region ends.
  std::vector<ValueId> staying = values.operands;
  std::set<ValueId> operands(values.operands.begin(), values.operands.end());
  std::set<ValueId> results(values.results.begin(), values.results.end());
  std::vector<int> times = resultTimes(stage, block);
  for (size_t r = 0; r < times.size(); ++r) {
    ValueId value = block.results[r].value;
    if (times[r] >= region.first && times[r] < region.first + region.count &&
        !operands.count(value) && !results.count(value))
      staying.push_back(value);
  }
  for (size_t r = 0; r < values.results.size(); ++r) {
    ValueId result = values.results[r];
    Extent extent = extentOf(stage, result);
    for (ValueId other : staying)
      if (Extent at = extentOf(stage, other); extent.overlaps(at))
        shared.push_back({result, other, extent == at && operands.count(other) > 0});
    for (size_t other = 0; other < r; ++other)
      if (extent.overlaps(extentOf(stage, values.results[other])))
        shared.push_back({result, values.results[other], false});
  }
  return shared;
}

bool shareBytes(const Stage &stage, ValueId a, ValueId b) {
  return extentOf(stage, a).overlaps(extentOf(stage, b));
}

bool areAtOnePlace(const Stage &stage, ValueId a, ValueId b) {
  return extentOf(stage, a) == extentOf(stage, b);
}

bool sharesBytesOfSlot(const Stage &stage, ValueId value, int slot) {
  return extentOf(stage, value)
      .overlaps(slotExtent(stage, slot, sizeBytes(stage.slots[slot].type)));
}

} // namespace tbc::program
