//===- Ring.cpp - A stream of bytes through shared memory -------------------===//

#include "runtime/comm/Ring.h"

#include <algorithm>
#include <cstring>

namespace tbc::comm {

/// The most bytes moved at once, so that the other side can start earlier.
constexpr int64_t stepBytes = 1 << 16;

int64_t Ring::write(const unsigned char *from, int64_t count) {
  uint64_t written = head->written.load(std::memory_order_relaxed);
  uint64_t read = head->read.load(std::memory_order_acquire);
  int64_t room = capacity - int64_t(written - read);
  int64_t offset = int64_t(written & uint64_t(capacity - 1));
  int64_t step = std::min({count, room, capacity - offset, stepBytes});
  if (step <= 0)
    return 0;
  std::memcpy(bytes + offset, from, size_t(step));
  head->written.store(written + uint64_t(step), std::memory_order_release);
  return step;
}

int64_t Ring::read(unsigned char *into, int64_t count) {
  uint64_t read = head->read.load(std::memory_order_relaxed);
  int64_t there = int64_t(head->written.load(std::memory_order_acquire) - read);
  if (there < 0 || there > capacity)
    return -1;
  int64_t offset = int64_t(read & uint64_t(capacity - 1));
  int64_t step = std::min({count, there, capacity - offset, stepBytes});
  if (step == 0)
    return 0;
  std::memcpy(into, bytes + offset, size_t(step));
  head->read.store(read + uint64_t(step), std::memory_order_release);
  return step;
}

// Either the sleeping side sees the moved bytes, or the moving side sees the sleep.

void Ring::announce(std::atomic<uint32_t> &sleeps) {
  sleeps.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Ring::mustWake(std::atomic<uint32_t> &sleeps) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return sleeps.load(std::memory_order_relaxed) != 0 &&
         sleeps.exchange(0, std::memory_order_relaxed) != 0;
}

} // namespace tbc::comm
