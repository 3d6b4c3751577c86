//===- Processor.h - Processor counts and latencies of GPUs ----------------===//
//
// Plain C++. Properties of a device beyond the cluster file: concurrent blocks and warps, and the
// latency of a load. Bandwidth and FLOP/s are in the cluster file.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_ROOFLINE_PROCESSOR_H
#define TBC_TOOLS_ROOFLINE_PROCESSOR_H

#include "planner/devices/Cluster.h"

#include <optional>

namespace tbc::roofline {

struct Processor {
  int capability = 0; // 10 major + minor
  int multiprocessors = 0;
  int threadsPerMultiprocessor = 0;
  int schedulers = 4;        // per multiprocessor: each issues one warp instruction per cycle
  double clockHertz = 0;     // clock of the cluster's FP32 peak
  double latencySeconds = 0; // of a load from device memory
  /// The part of the peak of 16-bit matrix products that `mma.sync` reaches: all, or 62.9 % from
  /// sm_90 on, whose peak takes `wgmma` (arXiv 2402.13499, section on tensor cores).
  double mmaShare = 1;

  /// Returns warp instructions per second. Example: h100-sxm has 132 * 4 * 1.98e9 = 1.05e12.
  double issuePerSecond() const {
    return double(multiprocessors) * double(schedulers) * clockHertz;
  }
  /// Returns the number of concurrent blocks of `threads` threads, if registers and shared memory
  /// suffice. Example: h100-sxm holds 132 * 2048 / 256 = 1056 blocks of 256 threads.
  double blocksOfWave(int threads) const {
    return double(multiprocessors) * double(threadsPerMultiprocessor) / double(threads);
  }
};

/// Returns the processors of a cluster's devices, by the name of the preset. Null for other
/// clusters, and for presets without NVIDIA GPUs.
std::optional<Processor> processorOf(const planner::Cluster &cluster);

} // namespace tbc::roofline

#endif // TBC_TOOLS_ROOFLINE_PROCESSOR_H
