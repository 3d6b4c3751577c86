//===- Pooling.h - Pooling and its gradients -------------------------------===//
//
// Part of tbc.
//
// x [n, c, spatial..], y [n, c, positions..]; attributes kernel, strides, pads (all low, then all
// high) and dilations (max_pool; ones for avg_pool unless given). Windows are those of
// Convolution.h; every window meets the input.
//
//   max_pool       x     -> y     the largest element in the window; padding takes no part;
//   residues in the
//                                 order of orderKey.
//   max_pool_grad  x, dy -> dx    dy goes to the window's largest element, the lowest index of
//   equals. avg_pool       x     -> y     sum / count; count = all taps if count_include_pad, else
//   those inside x. avg_pool_grad  dy    -> dx    dy / count to every element of the window.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_POOLING_H
#define TBC_RUNTIME_KERNELS_POOLING_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &poolingKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_POOLING_H
