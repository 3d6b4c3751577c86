//===- Einsum.h - Products summed over labels ------------------------------===//
//
// Part of tbc.
//
//   einsum{lhs_labels, rhs_labels, out_labels}
//       Labels are integers, one per dim. out[o] = the sum over every label absent from out of
//       lhs[l] * rhs[r]. A label may stand in one operand only and be absent from out (that operand
//       is summed over it first); no label stands twice in one list, and every label of out stands
//       in an operand.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_EINSUM_H
#define TBC_RUNTIME_KERNELS_EINSUM_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &einsumKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_EINSUM_H
