//===- Reduction.h - Kernels that reduce over dims -------------------------===//
//
// Part of tbc.
//
//   reduce_sum{dims}        the sum over dims, which the result lacks; 0 over nothing.
//   reduce_max{dims}        the largest element, in residues by orderKey; over nothing an error.
//   stabilizer_max{dims}    what is subtracted before exp so that it cannot overflow: reduce_max,
//                           and 0 in residues (any value is right there, and 0 is the same on every
//                           shard).
//   running_sum{dim, exclusive, reverse}   y_i = the sum of x_j along dim over j <= i; reverse:
//                           j >= i; exclusive: without j = i.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_REDUCTION_H
#define TBC_RUNTIME_KERNELS_REDUCTION_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &reductionKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_REDUCTION_H
