//===- Recurrent.h - Kernels of recurrent networks -------------------------===//
//
// Part of tbc. Plain C++.
//
//   lstm{reverse}                  x[s, b, 4 h], R[4 h, h], h0[b, h], c0[b, h] -> h, c, gates
//   lstm_grad{reverse}             dh, dc, R, c0, c, gates -> dx, dh0, dc0
//   gru{reverse,reset_after}       x[s, b, 3 h], R[3 h, h], bias[h], h0[b, h] -> h, gates, product
//   gru_grad{reverse,reset_after}  dh, R, h0, h, gates, product -> dx, dproduct, dh0
//
// ir/Recurrent.td has the formulas.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_RECURRENT_H
#define TBC_RUNTIME_KERNELS_RECURRENT_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &recurrentKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_RECURRENT_H
