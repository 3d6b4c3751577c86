//===- Progress.cpp - Progress reports of a device -------------------------===//

#include "runtime/cuda/Progress.h"

#include <cstring>
#include <numeric>
#include <vector>

namespace tbc::cuda {

static constexpr int64_t wordBytes = sizeof(int32_t);
// The words of different lines do not share a cache line.
static constexpr int64_t wordPitch = 128;

Result<std::shared_ptr<Progress>> Progress::create(const DevicePtr &device) {
  auto progress = std::make_shared<Progress>();
  auto numbers = DeviceMemory::allocate(device, most * wordBytes, "numbers of a step's progress");
  if (!numbers)
    return numbers.error();
  progress->numbers = std::move(*numbers);
  // First used to upload the numbers.
  auto words = PinnedMemory::allocate(device, most * wordBytes);
  if (!words)
    return words.error();
  progress->words = std::move(*words);
  std::vector<int32_t> all(most);
  std::iota(all.begin(), all.end(), 1);
  std::memcpy(progress->words.data(), all.data(), size_t(most * wordBytes));
  auto stream = Stream::create(device, "progress");
  if (!stream)
    return stream.error();
  Status status =
      stream->copyToDevice(progress->numbers.address(), progress->words.data(), most * wordBytes);
  if (status)
    status = stream->synchronize();
  if (!status)
    return status.error();
  progress->reset();
  return progress;
}

unsigned char *Progress::wordOf(Line line) const { return words.data() + int(line) * wordPitch; }

Status Progress::tell(const Stream &stream, Line line, int number) const {
  return stream.copyToHost(wordOf(line),
                           numbers.address() + DeviceAddress((number - 1) * wordBytes), wordBytes);
}

int Progress::seen(Line line) const {
  // The device may be writing it.
  return __atomic_load_n(reinterpret_cast<const int32_t *>(wordOf(line)), __ATOMIC_ACQUIRE);
}

void Progress::reset() {
  for (int line = 0; line < numLines; ++line)
    __atomic_store_n(reinterpret_cast<int32_t *>(wordOf(Line(line))), 0, __ATOMIC_RELEASE);
}

} // namespace tbc::cuda
