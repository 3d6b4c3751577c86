//===- PoolWorkspace.h - Memory of the gradient of a max_pool on GPUs -------===//
//
// Plain C++. The kernel on GPUs (codegen/cuda/ops/Windows.cpp) keeps the position of each window's
// largest element between its launches, and the planner counts its bytes.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_POOLWORKSPACE_H
#define TBC_IR_POOLWORKSPACE_H

#include <cstdint>

namespace tbc {

/// Returns the bytes of one tap for each of `windows` windows of `taps` taps: a byte for at most
/// 256 taps, else four. Example: ResNet-50 pools 128 x 64 x 56 x 56 windows of 3 x 3, 24.5 MiB.
inline int64_t argmaxBytes(int64_t windows, int64_t taps) {
  constexpr int64_t tapsOfByte = 256, wideBytes = 4;
  return windows * (taps <= tapsOfByte ? 1 : wideBytes);
}

} // namespace tbc

#endif // TBC_IR_POOLWORKSPACE_H
