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

/// The shared state of a ring, in front of its bytes; initially zero. Each word has its own cache
/// line.
struct RingHead {
  alignas(64) std::atomic<uint64_t> written; // in bytes, since the beginning
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> readerSleeps;
  alignas(64) std::atomic<uint32_t> writerSleeps;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "what processes share takes no locks");

/// One side of a ring. A side announces its sleep and then checks once more. The other side wakes
/// it after it has moved bytes.
class Ring {
public:
  Ring() = default;
  /// `capacity`: the bytes behind the head, a power of two.
  Ring(void *memory, int64_t capacity)
      : head(static_cast<RingHead *>(memory)),
        bytes(static_cast<unsigned char *>(memory) + sizeof(RingHead)), capacity(capacity) {}

  /// Copies as many of the bytes as fit now, and returns their number.
  int64_t write(const unsigned char *from, int64_t count);
  /// Copies available bytes and returns their number; negative if the other side's counter is
  /// invalid.
  int64_t read(unsigned char *into, int64_t count);

  void announceReaderSleep() { announce(head->readerSleeps); }
  void announceWriterSleep() { announce(head->writerSleeps); }
  /// Returns whether to wake the other side; true once per sleep.
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
