//===- Einsum.h - Products summed over labels ------------------------------===//
//
// Part of tbc.
//
//   einsum{lhs_labels, rhs_labels, out_labels}
//       Labels are integers, one per dim. out[o] = the sum of lhs[l] * rhs[r] over every label
//       absent from out. A label of one operand only may be absent from out; that operand is then
//       summed over it first. A label stands at most once in a list, and every label of out stands
//       in an operand. Example: lhs [0, 1], rhs [1, 2], out [0, 2] is a matmul.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_EINSUM_H
#define TBC_RUNTIME_KERNELS_EINSUM_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &einsumKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_EINSUM_H
