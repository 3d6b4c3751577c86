//===- Experts.h - Kernels of a mixture of experts -------------------------===//
//
// Part of tbc. Plain C++.
//
//   routed_experts{activation,gated,top}
//       x[t, h], weights[t, e], in[e, g * f, h], out[e, o, f] -> y[t, o]
//   routed_experts_grad{activation,gated,top}
//       dy, x, weights, in, out -> the gradients of x, weights, in, out
//   dispatch{capacity,weighted}  x[g, t, h], weights[g, t, e] -> slots[g, e, c, h]
//   combine{weighted}            slots[g, e, c, h], weights[g, t, e] -> y[g, t, h]
//   combine_weights_grad         dy[g, t, h], slots[g, e, c, h], weights[g, t, e] -> dw[g, t, e]
//
// ir/Experts.td has the formulas. An expert reads only the tokens with a nonzero weight; with a
// capacity, the first of these. Its layers are computed by other kernels.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_EXPERTS_H
#define TBC_RUNTIME_KERNELS_EXPERTS_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &expertKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_EXPERTS_H
