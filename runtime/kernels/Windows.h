//===- Windows.h - Sliding windows over spatial dims -----------------------===//
//
// Part of tbc. Internal to the kernels: convolution and pooling.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_WINDOWS_H
#define TBC_RUNTIME_KERNELS_WINDOWS_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

/// The input element read by each tap of a window at each output position, over the spatial dims of
/// one channel, flattened in row-major order.
struct Windows {
  int64_t positions = 0, taps = 0, inputs = 0;
  /// At [tap * positions + position]: the flat input index, or -1 in the padding. For one position
  /// the indices ascend with the tap.
  std::vector<int64_t> inputIndex;

  int64_t at(int64_t tap, int64_t position) const { return inputIndex[tap * positions + position]; }
};

/// Returns the windows of size `kernel` over `input`, by the attributes "strides", "pads" (all low,
/// then all high) and "dilations" (default 1). KernelError unless the positions are exactly
/// `output`.
Windows makeWindows(const Attrs &attrs, const Shape &kernel, const Shape &input,
                    const Shape &output);

/// The dims of [n, c, spatial..] after the first two.
Shape spatialDims(const Shape &shape);

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_WINDOWS_H
