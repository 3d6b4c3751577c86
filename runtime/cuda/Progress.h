//===- Progress.h - Progress reports of a device ---------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_PROGRESS_H
#define TBC_RUNTIME_CUDA_PROGRESS_H

#include "runtime/cuda/Device.h"

namespace tbc::cuda {

/// Numbers that streams report to the host. Within a graph, events cannot show how far its launch
/// has come. A report copies a number of 4 bytes to host memory.
class Progress {
public:
  /// Separate counters for kernels and collectives.
  enum Line { Kernels, Collectives, numLines };
  /// Numbers go from 1 to this.
  static constexpr int most = 1 << 16;

  /// Waits until the device has its data. Errors: RankFailed.
  static Result<std::shared_ptr<Progress>> create(const DevicePtr &device);

  /// Enqueues the report of `number` to the host.
  Status tell(const Stream &stream, Line line, int number) const;
  /// Returns the last reported number since `reset`; 0 before the first.
  int seen(Line line) const;
  /// Call it only while no stream reports.
  void reset();

private:
  unsigned char *wordOf(Line line) const;

  DeviceMemory numbers; // 1, 2, 3 ... to copy from
  PinnedMemory words;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_PROGRESS_H
