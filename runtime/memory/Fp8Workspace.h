//===- Fp8Workspace.h - Memory of matmuls in fp8 --------------------------===//
//
// Part of tbc. Plain C++. Matmuls in fp8 (runtime/cuda/Fp8Matmuls.h) share a workspace beside the
// memory plan, for the largest of them. The planner predicts its size by the same function.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_MEMORY_FP8WORKSPACE_H
#define TBC_RUNTIME_MEMORY_FP8WORKSPACE_H

#include <cstdint>

namespace tbc::program::fp8 {

/// Elements that one thread quantises at a time; sizes of matrices must be multiples of it.
inline constexpr int64_t step = 16;

/// Threads of a launch, for any sizes. `scale` is an exception: it is one warp. Quantising takes
/// many threads to hide the latency of reads. `amax` takes few, because one warp reads all its
/// partials.
inline constexpr int64_t numThreads = int64_t(1) << 16, numQuantiseThreads = int64_t(1) << 18;
inline constexpr int64_t numWarps = numThreads / 32;

/// In front of the matrices: partial maxima, then the scales of both.
inline constexpr int64_t scalesAt = numWarps * 4, scaleBytes = 256,
                         matricesAt = scalesAt + 2 * scaleBytes;
/// Memory outside all plans stays small compared with a device's memory. A matmul that would take
/// more keeps its own types.
inline constexpr int64_t mostWorkspaceBytes = int64_t(2) << 30;

/// Returns where the second operand begins, behind `bytes` of the first one.
inline constexpr int64_t roomOf(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Returns the workspace of a matmul whose operands have these bytes in fp8. Example: 4096 x 4096
/// elements each: 32 MiB and 8.5 KiB.
inline constexpr int64_t workspaceBytes(int64_t bytesA, int64_t bytesB) {
  return matricesAt + roomOf(bytesA) + roomOf(bytesB);
}

} // namespace tbc::program::fp8

#endif // TBC_RUNTIME_ABI_FP8WORKSPACE_H
