//===- Device.h - A GPU and its driver objects -----------------------------===//
//
// Part of tbc. Plain C++. Owners of the driver's objects. All errors have code RankFailed and name
// the attempted call (checkDriver).
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

/// Rounds up to the alignment of tensors and workspaces on a device. Example: 300 gives 512.
inline int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// A GPU with its primary context, shared with NVIDIA's libraries. Objects made on it keep it open.
/// Threads make it current before they use it.
class Device {
public:
  /// Opens the device with this number, counted from 0 within CUDA_VISIBLE_DEVICES. Errors: there
  /// is no such device.
  static Result<std::shared_ptr<Device>> open(const Driver &driver, int ordinal);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  Status makeCurrent() const;

  /// Marks the device as hung: from now on no call waits for it, and its objects are freed only at
  /// the end of the process.
  void giveUp() { hasHung = true; }
  bool isGivenUp() const { return hasHung; }
  /// Registers or unregisters an executable graph. The caller of removeGraph destroys it.
  void addGraph(GraphExecHandle graph);
  bool removeGraph(GraphExecHandle graph);
  /// Destroys the registered graphs. A running graph ends first, but the call does not wait for it.
  /// Source: NVIDIA's "CUDA Driver API", cuGraphExecDestroy.
  void dropGraphs();

  const Driver &driver() const { return table; }
  /// Returns, for example, "GPU 0 (NVIDIA H200, sm_90)".
  const std::string &name() const { return text; }
  /// Returns, for example, "NVIDIA H200, sm_90". Equal devices have equal models.
  const std::string &model() const { return modelText; }
  /// 10 major + minor. Example: 90 for sm_90.
  int capability() const { return sm; }
  int numMultiprocessors() const { return multiprocessors; }
  int maxThreadsPerBlock() const { return maxThreads; }
  /// Per block, dynamic and static.
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

/// Device memory, uninitialized.
class DeviceMemory {
public:
  /// Frees the memory.
  using ReleaseFn = std::function<void(DeviceAddress)>;
  /// `what` is for errors, e.g. "the arena of stage 0". 0 bytes allocate no memory and give address
  /// 0.
  static Result<DeviceMemory> allocate(DevicePtr device, int64_t bytes, const std::string &what);
  /// Takes ownership of another library's allocation.
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
  ReleaseFn release; // empty: the driver frees it
};

/// Page-locked host memory, for asynchronous copies by the device.
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
  /// `isTimed`: records the time, at a higher cost.
  static Result<Event> create(DevicePtr device, bool isTimed = false);
  Event() = default;
  Event(Event &&other) noexcept { *this = std::move(other); }
  Event &operator=(Event &&other) noexcept;
  ~Event();

  EventHandle handle() const { return event; }
  /// Waits until the stream has reached the event; returns at once if it was never recorded.
  Status wait() const;
  /// Returns whether the stream has reached the event.
  Result<bool> hasPassed() const;
  /// Returns the device's seconds from `begin` to this event. Both are timed, and passed.
  Result<double> secondsSince(const Event &begin) const;

private:
  DevicePtr device;
  EventHandle event = nullptr;
};

/// Operations in order, concurrent to other streams.
class Stream {
public:
  /// `name` is for errors, e.g. "compute".
  static Result<Stream> create(DevicePtr device, std::string name);
  Stream() = default;
  Stream(Stream &&other) noexcept { *this = std::move(other); }
  Stream &operator=(Stream &&other) noexcept;
  ~Stream();

  StreamHandle handle() const { return stream; }
  /// Places the event at the current end of the stream.
  Status record(const Event &event) const;
  /// Makes later operations wait for the last recorded point of the event.
  Status waitFor(const Event &event) const;
  /// Waits for all operations of the stream.
  Status synchronize() const;

  Status copyToDevice(DeviceAddress to, const void *pinned, int64_t bytes) const;
  Status copyToHost(void *pinned, DeviceAddress from, int64_t bytes) const;
  Status copyWithin(DeviceAddress to, DeviceAddress from, int64_t bytes) const;
  /// Copies `rows` rows of `rowBytes`; rows begin every `toPitch` and `fromPitch` bytes.
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
