//===- Ring.h - A stream of bytes through shared memory ---------------------===//
//
// Part of tbc. Plain C++. Internal to ranks of one host.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_RING_H
#define TBC_RUNTIME_COMM_RING_H

#include <atomic>
#include <cstdint>

namespace tbc::comm {

/// What both sides see of a ring, in front of its bytes; all zero at first. Each word is on a line
/// of caches of its own.
struct RingHead {
  alignas(64) std::atomic<uint64_t> written; // bytes, since the begin
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> readerSleeps;
  alignas(64) std::atomic<uint32_t> writerSleeps;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "what processes share takes no locks");

/// One side of a ring. A side that is about to sleep says so and looks again; the other one then
/// wakes it when it has moved something.
class Ring {
public:
  Ring() = default;
  /// `capacity`: a power of two, of the bytes behind the head.
  Ring(void *memory, int64_t capacity)
      : head(static_cast<RingHead *>(memory)),
        bytes(static_cast<unsigned char *>(memory) + sizeof(RingHead)), capacity(capacity) {}

  /// How many of the bytes fit now; they are copied.
  int64_t write(const unsigned char *from, int64_t count);
  /// How many bytes were there to copy; negative: what the other side wrote makes no sense.
  int64_t read(unsigned char *into, int64_t count);

  void announceReaderSleep() { announce(head->readerSleeps); }
  void announceWriterSleep() { announce(head->writerSleeps); }
  /// Whether the other side is to be woken; once for each time that it sleeps.
  bool mustWakeReader() { return mustWake(head->readerSleeps); }
  bool mustWakeWriter() { return mustWake(head->writerSleeps); }

private:
  static void announce(std::atomic<uint32_t> &sleeps);
  static bool mustWake(std::atomic<uint32_t> &sleeps);

  RingHead *head = nullptr;
  unsigned char *bytes = nullptr;
  int64_t capacity = 0;
};

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_RING_H
