//===- WellFormedMemory.cpp - Whether a memory plan is within its bounds ---===//

#include "runtime/abi/Region.h"
#include "runtime/abi/WellFormed.h"
#include "runtime/memory/Arena.h"

namespace tbc::program {
namespace {

constexpr int64_t maxArenaBytes = int64_t(1) << 56;

/// Why `bytes` from `offset` on are not aligned or not within `limit`, or "".
std::string whyOutside(int64_t offset, int64_t bytes, int64_t limit) {
  if (offset < 0 || offset > limit || bytes > limit - offset)
    return "bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
           std::to_string(bytes) + " are not within " + std::to_string(limit);
  if (offset % memory::alignmentBytes != 0)
    return "offset " + std::to_string(offset) + " is no multiple of " +
           std::to_string(memory::alignmentBytes);
  return "";
}

/// The bytes of the arena of a location.
int64_t arenaBytes(const MemoryPlan &plan, Location location) {
  return location == Location::Host ? plan.hostArenaBytes : plan.arenaBytes;
}

/// Sets the location of each frame's slots; a frame without slots is on the device.
std::string whyInvalid(const Stage &stage, std::vector<Location> &ofFrames) {
  ofFrames.assign(stage.memory.frames.size(), Location::Device);
  std::vector<int> first(stage.memory.frames.size(), -1);
  for (int i = 0; i < int(stage.slots.size()); ++i) {
    int frame = stage.memory.slots[i].frame;
    if (frame < 0)
      continue;
    Location location = stage.slots[i].location;
    if (first[frame] >= 0 && ofFrames[frame] != location)
      return "slot " + quoted(stage.slots[i].name) + " and slot " +
             quoted(stage.slots[first[frame]].name) + " share frame " + std::to_string(frame) +
             ", and one of them is on the host";
    first[frame] = i;
    ofFrames[frame] = location;
  }
  return "";
}

std::string whyInvalid(const Frame &frame, int64_t microBatches, int64_t arenaBytes) {
  if (frame.bytes < 0)
    return "its size is negative";
  if (frame.offsets.empty() || int64_t(frame.offsets.size()) > microBatches)
    return "it has " + std::to_string(frame.offsets.size()) + " offsets for " +
           std::to_string(microBatches) + " micro-batches";
  for (int64_t offset : frame.offsets)
    if (std::string why = whyOutside(offset, frame.bytes, arenaBytes); !why.empty())
      return why;
  return "";
}

std::string whyInvalid(const MemoryPlan &plan, const Slot &slot, const SlotPlace &place) {
  if (place.frame < -1 || place.frame >= int(plan.frames.size()))
    return "there is no frame number " + std::to_string(place.frame);
  if ((place.frame >= 0) != livesAMicroBatch(slot.role))
    return place.frame >= 0 ? "it lies in a frame, but lives longer than a micro-batch"
                            : "it lives for a micro-batch, but lies in no frame";
  return whyOutside(place.offset, sizeBytes(slot.type),
                    place.frame < 0 ? arenaBytes(plan, slot.location)
                                    : plan.frames[place.frame].bytes);
}

std::string whyInvalid(const Stage &stage, const kernels::TensorType &type, bool isOnHost,
                       bool isInside, const ValuePlace &place) {
  if (place.isInside())
    return isInside ? "" : "it has no place, but is read outside of its region";
  if (place.slot < -1 || place.slot >= int(stage.slots.size()))
    return "there is no slot number " + std::to_string(place.slot);
  bool slotIsOnHost = place.slot >= 0 && stage.slots[place.slot].location == Location::Host;
  if (isOnHost != slotIsOnHost)
    return isOnHost ? "it is on the host, but lies in no slot there"
                    : "it is on the device, but lies in a slot on the host";
  if (place.slot < 0)
    return whyOutside(place.offset, sizeBytes(type), stage.memory.arenaBytes);
  const Slot &slot = stage.slots[place.slot];
  return slot.type == type ? ""
                           : "it lies in slot " + quoted(slot.name) + " of type " +
                                 toString(slot.type) + ", its own is " + toString(type);
}

} // namespace

Status checkMemoryPlan(const Program &program, int index) {
  const Stage &stage = program.stages[index];
  const MemoryPlan &plan = stage.memory;
  std::string where = "stage " + std::to_string(index) + ", memory plan";
  if (plan.isEmpty() != program.stages[0].memory.isEmpty())
    return malformed(where, "some stages have one and some have none");
  if (plan.isEmpty())
    return Status::ok();
  for (int64_t bytes : {plan.arenaBytes, plan.hostArenaBytes})
    if (bytes < 0 || bytes > maxArenaBytes)
      return malformed(where, "an arena has not between 0 and 2^56 bytes");
  if (plan.slots.size() != stage.slots.size() || plan.values.size() != stage.values.size())
    return malformed(where, "it places " + std::to_string(plan.slots.size()) + " slots and " +
                                std::to_string(plan.values.size()) + " values of " +
                                std::to_string(stage.slots.size()) + " and " +
                                std::to_string(stage.values.size()));
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (std::string why = whyInvalid(plan, stage.slots[i], plan.slots[i]); !why.empty())
      return malformed(where + ", slot " + quoted(stage.slots[i].name), why);
  std::vector<Location> ofFrames;
  if (std::string why = whyInvalid(stage, ofFrames); !why.empty())
    return malformed(where, why);
  for (size_t i = 0; i < plan.frames.size(); ++i)
    if (std::string why =
            whyInvalid(plan.frames[i], program.microBatches, arenaBytes(plan, ofFrames[i]));
        !why.empty())
      return malformed(where + ", frame " + std::to_string(i), why);
  std::vector<bool> isOnHost = valuesOnHost(stage), isInside(stage.values.size(), false);
  for (BlockId id : stage.blocks())
    for (const Region &region : stage.block(id).regions)
      for (ValueId value : valuesInside(stage.block(id), region))
        isInside[value] = true;
  for (size_t i = 0; i < plan.values.size(); ++i)
    if (std::string why =
            whyInvalid(stage, stage.values[i], isOnHost[i], isInside[i], plan.values[i]);
        !why.empty())
      return malformed(where + ", value %" + std::to_string(i), why);
  return Status::ok();
}

} // namespace tbc::program
