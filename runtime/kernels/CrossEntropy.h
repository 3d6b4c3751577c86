//===- CrossEntropy.h - Cross entropy with integer labels ------------------===//
//
// Part of tbc.
//
//   cross_entropy{ignore_index, label_smoothing}
//       logits x[..,v], labels[..] -> loss[..], m[..], l[..]; over the last dim, at every row:
//       m = stabilizer_max(x), the row max;  l = sum exp(x - m), the row sum
//       loss = m + log(l) - (1 - s) x[label] - s / v sum(x);  0 if label = ignore_index
//   cross_entropy_grad{ignore_index, label_smoothing}   x, labels, m, l, dloss[..] -> dx[..,v]:
//       dx_j = dloss * (exp(x_j - m) / l - (1 - s) [j = label] - s / v);  0 in rows with label =
//       ignore_index
//
// s is label_smoothing, by default 0. ignore_index is by default -100. Any other label outside 0 ..
// v - 1 is an error.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_CROSSENTROPY_H
#define TBC_RUNTIME_KERNELS_CROSSENTROPY_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &crossEntropyKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_CROSSENTROPY_H
