//===- Progress.h - How far a device has got -------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_PROGRESS_H
#define TBC_RUNTIME_CUDA_PROGRESS_H

#include "runtime/cuda/Device.h"

namespace tbc::cuda {

/// Numbers that streams tell the host on their way: where they are part of a graph, events cannot
/// say how far its launch has got. A number is 4 bytes that are copied to memory of the host.
class Progress {
public:
  /// Two that are told apart: of kernels, and of collectives.
  enum Line { Kernels, Collectives, numLines };
  /// Numbers go from 1 to this.
  static constexpr int most = 1 << 16;

  /// Waits until the device has what it needs. Errors: RankFailed.
  static Result<std::shared_ptr<Progress>> create(const DevicePtr &device);

  /// Puts into the stream that the host is told `number`.
  Status tell(const Stream &stream, Line line, int number) const;
  /// What was told last since `reset`; 0: nothing.
  int seen(Line line) const;
  /// When no stream tells anything.
  void reset();

private:
  unsigned char *wordOf(Line line) const;

  DeviceMemory numbers; // 1, 2, 3 ... to copy from
  PinnedMemory words;
};

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_PROGRESS_H
