//===- HostCopies.cpp - Copies between device and host beside kernels ------===//

#include "runtime/cuda/HostCopies.h"

#include <algorithm>

namespace tbc::cuda {

// The limit of the search for overlaps. A stream with more unfinished copies ahead of it is limited
// by the link anyway.
static constexpr size_t mostCopies = 128;

Result<HostCopies> HostCopies::create(const DevicePtr &device) {
  HostCopies copies;
  copies.device = device;
  auto stream = Stream::create(device, "host copies");
  if (!stream)
    return stream.error();
  copies.own = std::move(*stream);
  return copies;
}

Status HostCopies::toHost(unsigned char *to, const DeviceRange &from) {
  if (from.bytes == 0)
    return Status::ok();
  Status status = own.copyToHost(to, from.begin, from.bytes);
  return status ? note(from, /*isWrite=*/false) : status;
}

Status HostCopies::toDevice(const DeviceRange &to, const unsigned char *from) {
  if (to.bytes == 0)
    return Status::ok();
  Status status = own.copyToDevice(to.begin, from, to.bytes);
  return status ? note(to, /*isWrite=*/true) : status;
}

Status HostCopies::note(const DeviceRange &range, bool isWrite) {
  if (spare.empty()) {
    auto event = Event::create(device);
    if (!event)
      return event.error();
    spare.push_back(std::move(*event));
  }
  Copy copy{range, isWrite, ++numCopies, std::move(spare.back())};
  spare.pop_back();
  Status status = own.record(copy.end);
  copies.push_back(std::move(copy));
  return status;
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// Copies run one after another, so a wait for one includes all earlier ones.
Status HostCopies::beforeUse(program::Stream which, const Stream &user, const DeviceRange &range,
                             bool isWrite) {
  int64_t &last = waited[size_t(which)];
  for (auto copy = copies.rbegin(); copy != copies.rend() && copy->number > last; ++copy) {
    bool isTooMany = copies.size() > mostCopies && copy + 1 == copies.rend();
    if (!isTooMany && !((isWrite || copy->isWrite) && copy->range.overlaps(range)))
      continue;
    if (Status status = user.waitFor(copy->end); !status)
      return status;
    last = copy->number;
    break;
  }
  retire();
  return Status::ok();
}

Status HostCopies::beforeUseBy(const Stream &user, const DeviceRange &range, bool isWrite) const {
  for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy)
    if ((isWrite || copy->isWrite) && copy->range.overlaps(range))
      return user.waitFor(copy->end);
  return Status::ok();
}

void HostCopies::noteOrder(program::Stream before, program::Stream after) {
  isCommunicating = true;
  waited[size_t(after)] = std::max(waited[size_t(after)], waited[size_t(before)]);
  retire();
}

/// Forgets copies for which all streams have waited.
void HostCopies::retire() {
  int64_t all = waited[size_t(program::Stream::Compute)];
  if (isCommunicating) // else it first follows the compute stream
    all = std::min(all, waited[size_t(program::Stream::Communication)]);
  while (!copies.empty() && copies.front().number <= all) {
    spare.push_back(std::move(copies.front().end));
    copies.pop_front();
  }
}

void HostCopies::forget() {
  waited.fill(numCopies);
  retire();
}

//===----------------------------------------------------------------------===//
// Waits of a copy
//===----------------------------------------------------------------------===//

std::vector<int> lastUsers(const program::Stage &stage, const program::Block &block, int index,
                           const DeviceRange &range, bool isWrite,
                           const std::function<DeviceAddress(program::ValueId)> &addressOf,
                           const std::function<DeviceAddress(int slot)> &addressOfSlot) {
  auto isOnHost = [&](int slot) {
    return slot >= 0 && stage.slots[size_t(slot)].location == program::Location::Host;
  };
  auto isAt = [&](program::ValueId value) {
    return !isOnHost(stage.memory.values[size_t(value)].slot) &&
           range.overlaps({addressOf(value), program::sizeBytes(stage.values[size_t(value)])});
  };
  auto isAnyAt = [&](const std::vector<program::ValueId> &values) {
    return std::any_of(values.begin(), values.end(), isAt);
  };
  // A result that takes effect after an instruction counts as part of it.
  std::vector<int> times = resultTimes(stage, block);
  auto writesAt = [&](int instruction) {
    for (size_t r = 0; r < times.size(); ++r) {
      const program::BlockResult &result = block.results[r];
      if (times[r] != instruction)
        continue;
      const program::Slot &slot = stage.slots[size_t(result.slot)];
      if ((isWrite && isAt(result.value)) ||
          (!isOnHost(result.slot) &&
           range.overlaps({addressOfSlot(result.slot), program::sizeBytes(slot.type)})))
        return true;
    }
    return false;
  };
  std::vector<int> users;
  std::array<bool, program::numStreams> isFound = {};
  for (int i = index - 1; i >= 0; --i) {
    const program::Instruction &instruction = block.instructions[size_t(i)];
    bool &isDone = isFound[size_t(instruction.stream)];
    if (isDone || (program::isHostCopy(instruction.kind) && !writesAt(i)))
      continue;
    isDone =
        isAnyAt(instruction.results) || (isWrite && isAnyAt(instruction.operands)) || writesAt(i);
    if (isDone)
      users.push_back(i);
  }
  return users;
}

} // namespace tbc::cuda
