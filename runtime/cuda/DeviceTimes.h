//===- DeviceTimes.h - Times of enqueued work on a GPU ----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_DEVICETIMES_H
#define TBC_RUNTIME_CUDA_DEVICETIMES_H

#include "runtime/cuda/Streams.h"
#include "runtime/exec/Machine.h"

#include <array>

namespace tbc::cuda {

/// Times the work of a rank's streams by events before and behind it. A time includes the gap
/// before a kernel if the stream was idle, and about a microsecond for the events. Source: NVIDIA's
/// "CUDA C++ Best Practices Guide", Using CUDA GPU Timers.
class DeviceTimes {
public:
  DeviceTimes(DevicePtr device, std::shared_ptr<Streams> streams)
      : device(std::move(device)), streams(std::move(streams)) {}

  /// Begins to time: waits for the device, and notes which time of this process is which time of
  /// each stream. Ends it with false; spans stay valid.
  Status turn(bool isOn);
  bool isOn() const { return isTiming; }

  /// Encloses the work enqueued in the stream between these calls. `op` is for `shares`.
  Status begin(program::Stream stream);
  Status end(program::Stream stream, const std::string &op);
  /// Returns the span of the last `end`, until `forget`.
  std::shared_ptr<const runtime::DeviceSpan> last() const { return lastSpan; }
  void forget() { lastSpan = nullptr; }

  /// Returns the seconds of all timed work by op. Waits for its end.
  Result<std::vector<runtime::KernelShare>> shares() const;

  /// An event of a stream, and when this process saw it.
  struct Origin {
    std::chrono::steady_clock::time_point time;
    std::shared_ptr<const Event> event;
  };

private:
  DevicePtr device;
  std::shared_ptr<Streams> streams;
  bool isTiming = false;
  std::array<Origin, program::numStreams> origins;
  std::shared_ptr<const Event> begun;
  std::shared_ptr<const runtime::DeviceSpan> lastSpan;
  std::vector<std::pair<std::string, std::shared_ptr<const runtime::DeviceSpan>>> spans;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_DEVICETIMES_H
