//===- Processor.h - The processors of a GPU -------------------------------===//
//
// Plain C++. What a cluster file does not say of a device: how many blocks and warps it executes at
// a time, and how long a load takes. Bandwidth and FLOP/s stand in the cluster file.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_ROOFLINE_PROCESSOR_H
#define TBC_TOOLS_ROOFLINE_PROCESSOR_H

#include "planner/core/Cluster.h"

#include <optional>

namespace tbc::roofline {

struct Processor {
  int capability = 0; // 10 major + minor
  int multiprocessors = 0;
  int threadsPerMultiprocessor = 0;
  int schedulers = 4;        // of a multiprocessor: each issues an instruction of a warp per cycle
  double clockHertz = 0;     // at which the cluster's FP32 peak is stated
  double latencySeconds = 0; // of a load from device memory

  /// Instructions of warps per second. h100-sxm: 132 * 4 * 1.98e9 = 1.05e12.
  double issuePerSecond() const {
    return double(multiprocessors) * double(schedulers) * clockHertz;
  }
  /// Blocks of so many threads that the device holds at a time, where registers and shared memory
  /// allow. h100-sxm: 132 * 2048 / 256 = 1056 blocks of 256 threads.
  double blocksOfWave(int threads) const {
    return double(multiprocessors) * double(threadsPerMultiprocessor) / double(threads);
  }
};

/// The processors of a cluster's devices, by the name of the preset; nothing for any other cluster,
/// and for presets of devices that are no GPUs of NVIDIA.
std::optional<Processor> processorOf(const planner::Cluster &cluster);

} // namespace tbc::roofline

#endif // TBC_TOOLS_ROOFLINE_PROCESSOR_H
