//===- Normalization.h - Softmax and the norms -----------------------------===//
//
// Part of tbc.
//
// Sums run over the normalised dim of size n, unless marked otherwise. Statistics are broadcast
// back. n is exact; epsilon and momentum are composite constants (see Kernel.h). rsqrt(u) = 1 /
// sqrt(u).
//
//   softmax{dim}        x -> y:  e = exp(x - stabilizer_max(x));  y = e / sum(e)
//   softmax_grad{dim}   y, dy -> dx = y * (dy - sum(y * dy))
//
//   layer_norm{epsilon}  x, w, b -> y, mean, rstd over the last dim:
//       mean = sum(x) / n;  var = sum((x - mean) * (x - mean)) / n;  rstd = rsqrt(var + epsilon)
//       y = (x - mean) * rstd * w + b
//   layer_norm_grad      dy, x, w, mean, rstd -> dx, with h = (x - mean) * rstd, g = dy * w:
//       dx = rstd * (g - sum(g) / n - h * (sum(g * h) / n))
//   norm_scale_grad      dy, x, mean, rstd -> dw = sum over rows of dy * ((x - mean) * rstd)
//
//   rms_norm{epsilon}    x, w -> y, rstd over the last dim:
//       rstd = rsqrt(sum(x * x) / n + epsilon);  y = x * rstd * w
//   rms_norm_grad        dy, x, w, rstd -> dx, with h = x * rstd, g = dy * w:
//       dx = rstd * (g - h * (sum(g * h) / n))
//   rms_scale_grad       dy, x, rstd -> dw = sum over rows of dy * (x * rstd)
//
//   batch_norm{epsilon}  x[n,c,*], scale, bias, mean, var -> y:
//       y = (x - mean) * rsqrt(var + epsilon) * scale + bias
//   batch_norm_train{epsilon, momentum}   x, scale, bias, rmean, rvar -> y, new_rmean, new_rvar;
//       per channel, sums over its n > 1 elements:
//       mean = sum(x) / n;  var = sum((x - mean) * (x - mean)) / n;  y as above
//       new_rmean = momentum * rmean + (1 - momentum) * mean
//       new_rvar = momentum * rvar + (1 - momentum) * (var * n / (n - 1)), or var alone if the
//       attribute unbiased is false
//
// The gradients are the VJPs of these formulas when rsqrt has the derivative -0.5 * r * r * r.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_NORMALIZATION_H
#define TBC_RUNTIME_KERNELS_NORMALIZATION_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &normalizationKernels();
const KernelTable &batchNormKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_NORMALIZATION_H
