//===- Device.h - A GPU, and what is made on it ----------------------------===//
//
// Part of tbc. Plain C++. Owners of the driver's objects; all errors are of code RankFailed and say
// what was tried (checkDriver).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DEVICE_H
#define TBC_RUNTIME_CUDA_DEVICE_H

#include "runtime/cuda/Driver.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

namespace tbc::cuda {

/// A GPU with its primary context, which is shared with NVIDIA's libraries. Whatever is made on it
/// keeps it open. Threads that use it make it current first.
class Device {
public:
  /// Errors: there is no device of this number (from 0, as CUDA_VISIBLE_DEVICES leaves them).
  static Result<std::shared_ptr<Device>> open(const Driver &driver, int ordinal);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  Status makeCurrent() const;

  /// What runs on it never ends: from now on nothing waits for it, and nothing of it is given back
  /// before the process ends.
  void giveUp() { hasHung = true; }
  bool isGivenUp() const { return hasHung; }
  /// Graphs that can be launched. Whoever removes one destroys it.
  void addGraph(GraphExecHandle graph);
  bool removeGraph(GraphExecHandle graph);
  /// Destroys them where they are. One that is under way ends first, and nobody waits for that.
  /// Source: NVIDIA's "CUDA Driver API", cuGraphExecDestroy.
  void dropGraphs();

  const Driver &driver() const { return table; }
  /// "GPU 0 (NVIDIA H200, sm_90)".
  const std::string &name() const { return text; }
  /// "NVIDIA H200, sm_90": equal devices have equal ones.
  const std::string &model() const { return modelText; }
  /// 10 major + minor: 90 for sm_90.
  int capability() const { return sm; }
  int numMultiprocessors() const { return multiprocessors; }
  int maxThreadsPerBlock() const { return maxThreads; }
  /// Of a block, dynamic and static.
  int maxSharedBytes() const { return maxShared; }
  int64_t maxBlocks() const { return maxGrid; }

  Status check(DriverCode code, const std::string &what) const {
    return checkDriver(table, code, text + ": " + what);
  }

private:
  Device(const Driver &driver, DeviceId id) : table(driver), id(id) {}
  Status start(int ordinal);

  const Driver table;
  DeviceId id;
  ContextHandle context = nullptr;
  std::atomic<bool> hasHung = false;
  std::mutex graphMutex;
  std::set<GraphExecHandle> graphs;
  std::string text, modelText;
  int sm = 0, multiprocessors = 0, maxThreads = 0, maxShared = 0, maxGrid = 0;
};

using DevicePtr = std::shared_ptr<Device>;

/// Memory of a device, not initialised.
class DeviceMemory {
public:
  /// Gives it back.
  using ReleaseFn = std::function<void(DeviceAddress)>;
  /// `what` is for errors: "the arena of stage 0". No bytes are none at all, at address 0.
  static Result<DeviceMemory> allocate(DevicePtr device, int64_t bytes, const std::string &what);
  /// What another library has allocated.
  static DeviceMemory own(DevicePtr device, DeviceAddress begin, int64_t bytes, ReleaseFn release);
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory &&other) noexcept { *this = std::move(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept;
  ~DeviceMemory();

  DeviceAddress address() const { return begin; }
  int64_t bytes() const { return size; }

private:
  DevicePtr device;
  DeviceAddress begin = 0;
  int64_t size = 0;
  ReleaseFn release; // empty: the driver does
};

/// Memory of the host that a device copies from and to by itself.
class PinnedMemory {
public:
  static Result<PinnedMemory> allocate(DevicePtr device, int64_t bytes);
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory &&other) noexcept { *this = std::move(other); }
  PinnedMemory &operator=(PinnedMemory &&other) noexcept;
  ~PinnedMemory();

  unsigned char *data() const { return begin; }
  int64_t bytes() const { return size; }

private:
  DevicePtr device;
  unsigned char *begin = nullptr;
  int64_t size = 0;
};

/// A point of a stream.
class Event {
public:
  /// `isTimed`: it says when it was passed, which makes it dearer.
  static Result<Event> create(DevicePtr device, bool isTimed = false);
  Event() = default;
  Event(Event &&other) noexcept { *this = std::move(other); }
  Event &operator=(Event &&other) noexcept;
  ~Event();

  EventHandle handle() const { return event; }
  /// Waits until the stream has got there; at once if it was never recorded.
  Status wait() const;
  /// Whether it has.
  Result<bool> hasPassed() const;
  /// The device's seconds from another one to this; both are timed, and passed.
  Result<double> secondsSince(const Event &begin) const;

private:
  DevicePtr device;
  EventHandle event = nullptr;
};

/// Operations in order, beside those of other streams.
class Stream {
public:
  /// `name` is for errors: "compute".
  static Result<Stream> create(DevicePtr device, std::string name);
  Stream() = default;
  Stream(Stream &&other) noexcept { *this = std::move(other); }
  Stream &operator=(Stream &&other) noexcept;
  ~Stream();

  StreamHandle handle() const { return stream; }
  /// The event is where the stream is now.
  Status record(const Event &event) const;
  /// What comes now waits for what the event was recorded for last.
  Status waitFor(const Event &event) const;
  /// Waits until all of it is done.
  Status synchronize() const;

  Status copyToDevice(DeviceAddress to, const void *pinned, int64_t bytes) const;
  Status copyToHost(void *pinned, DeviceAddress from, int64_t bytes) const;
  Status copyWithin(DeviceAddress to, DeviceAddress from, int64_t bytes) const;
  /// `rows` rows of `rowBytes`, that begin `toPitch` and `fromPitch` bytes after each other.
  Status copyRows(DeviceAddress to, int64_t toPitch, DeviceAddress from, int64_t fromPitch,
                  int64_t rowBytes, int64_t rows) const;
  Status fill(DeviceAddress to, unsigned char value, int64_t bytes) const;

private:
  Status check(DriverCode code, const char *what) const;

  DevicePtr device;
  StreamHandle stream = nullptr;
  std::string name;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICE_H
