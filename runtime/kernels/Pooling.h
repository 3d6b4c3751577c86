//===- Pooling.h - Pooling and its gradients -------------------------------===//
//
// Part of tbc.
//
// Shapes: x [n, c, spatial..], y [n, c, positions..]. Attributes: kernel, strides, pads (all low,
// then all high) and dilations (max_pool; optional ones for avg_pool, default 1). Windows are those
// of Convolution.h; every window overlaps the input.
//
//   max_pool       x     -> y     the largest element in the window, without padding; residues in
//                                 the order of orderKey; NaN if an element is.
//   max_pool_grad  x, dy -> dx    dy goes to the window's largest element, the lowest index among
//                                 equals, or its last NaN.
//   avg_pool       x     -> y     sum / count; count = all taps if count_include_pad, else those
//                                 inside x.
//   avg_pool_grad  dy    -> dx    dy / count to every element of the window.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_POOLING_H
#define TBC_RUNTIME_KERNELS_POOLING_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &poolingKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_POOLING_H
