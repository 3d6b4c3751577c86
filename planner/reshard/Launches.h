//===- Launches.h - Neighbouring kernels that share a launch ----------------===//
//
// Plain C++. codegen/cuda joins the kernels of a block by this rule, and the planner counts the
// launches of an optimizer's step by it.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_LAUNCHES_H
#define TBC_PLANNER_RESHARD_LAUNCHES_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::reshard {

/// The most tensors of a launch: their addresses are one parameter, and parameters of a kernel take
/// at most 4 KiB (PTX ISA, kernel function parameters, before 8.1).
inline constexpr int maxLaunchTensors = 512;
/// The most codes of a launch, which takes registers and instructions from all of them.
inline constexpr int maxLaunchCodes = 8;
/// Bytes of the tables of all joint launches of a Program. They lie in constant memory, 64 KiB of a
/// module (CUDA C++ Programming Guide, table of compute capabilities).
inline constexpr int64_t maxTableBytes = 48 << 10;

/// A kernel in the order of its block.
struct LaunchedKernel {
  /// Whether it is a flat loop that may share a launch: all its results leave the block, and no
  /// other instruction reads them.
  bool mayJoin = false;
  /// Whether nothing stands between it and the kernel before.
  bool isBehindPrevious = false;
  std::vector<int> tensors;  // numbers of those it reads and writes, each once
  std::vector<int> messages; // numbers of the collectives that it waits for
  std::string code;          // kernels of one code differ in the number of elements
};

/// Groups the kernels of a block into launches. Returns the number of kernels of each launch, in
/// order. A kernel joins the launch before it if
///   - it and all kernels there may, and nothing stands between;
///   - it waits for no message that the launch does not wait for;
///   - the launch then has at most `maxLaunchTensors` tensors, each counted once, and
///     `maxLaunchCodes` codes.
/// `tableBytes`: of the launches so far, updated. A launch whose tables no longer fit into
/// `maxTableBytes` loses its first kernel, which is then a launch of its own.
///
/// Example: Adam reads and writes 8 tensors of each of 148 parameters, and reads 4 scalars. 63
/// parameters have 508 tensors, so there are 3 launches: 63, 63 and 22 kernels.
std::vector<int> joinLaunches(const std::vector<LaunchedKernel> &kernels, int64_t &tableBytes);

/// Returns the bytes of the tables of a launch of `kernels` kernels, the largest of which has
/// `tensors`: of each its first block and its threads in 4 bytes, its code and its tensors in 2.
/// The list of first blocks is filled up to a power of two. Example: 63 kernels of 12 tensors take
/// 256 + 252 + 1,638 bytes.
int64_t launchTableBytes(int64_t kernels, int64_t tensors);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_LAUNCHES_H
