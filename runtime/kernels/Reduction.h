//===- Reduction.h - Kernels that reduce over dims -------------------------===//
//
// Part of tbc.
//
//   reduce_sum{dims}        the sum over dims, which the result lacks; an empty sum is 0.
//   reduce_max{dims}        the largest element, in residues by orderKey; NaN if an element is; an
//                           error if empty.
//   stabilizer_max{dims}    the row max that is subtracted before exp to avoid overflow:
//                           reduce_max, and 0 in residues (any value is valid there, and 0 is the
//                           same on every shard).
//   running_sum{dim, exclusive, reverse}   y_i = the sum of x_j along dim over j <= i; reverse:
//                           j >= i; exclusive: without j = i.
//
// Example: running_sum of [1, 2, 3] is [1, 3, 6], exclusive [0, 1, 3], reverse [6, 5, 3].
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_REDUCTION_H
#define TBC_RUNTIME_KERNELS_REDUCTION_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &reductionKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_REDUCTION_H
