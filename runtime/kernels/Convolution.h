//===- Convolution.h - Convolution and its two gradients -------------------===//
//
// Part of tbc.
//
// Shapes: x [n, c, spatial..], w [o, c/groups, window..], y [n, o, positions..]. Attributes:
// strides, pads (all low, then all high), dilations, groups. Per spatial dim i(p, t) = p * stride +
// t * dilation - low; terms outside x are 0. Output channel o of group g reads the input channels
// g*(c/groups) + j.
//
//   conv              x, w  -> y:    y[n,o,p] = sum over j, t of w[o,j,t] * x[n, g(o),j, i(p,t)]
//   conv_grad_input   dy, w -> dx:   dx[n,g,j,q] = sum over o in g, p, t with i(p,t) = q of
//                                    w[o,j,t] * dy[n,o,p]
//   conv_grad_weight  x, dy -> dw:   dw[o,j,t] = sum over n, p of dy[n,o,p] * x[n, g(o),j, i(p,t)]
//
// A bias is a separate broadcast add.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_CONVOLUTION_H
#define TBC_RUNTIME_KERNELS_CONVOLUTION_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &convolutionKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_CONVOLUTION_H
