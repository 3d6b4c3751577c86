//===- Vocabulary.h - Kernels over numbered rows and classes ---------------===//
//
// Part of tbc.
//
//   embedding       table[v, d..], indices[i..], numbers[v], last[] -> y[i.., d..]: the row of the
//                   table whose number is the index; 0 where no row has it
//   embedding_grad  updates[i.., d..], indices, numbers, last -> dtable[v, d..]: each update is
//                   added to the row that has its number, zeros elsewhere
//   class_max       x[..,v], numbers[v] -> m[..]: the largest x_v; 0 in residues
//   class_sums{ignore_index, label_weight, class_weight}
//                   x[..,v], m[..], labels[..], numbers[v], last[] -> denominator[..], target[..]:
//       denominator = sum_v exp(x_v - m)
//       target      = sum_v x_v * (class_weight + label_weight * [numbers_v = label])
//   class_sums_grad{..}   x, m, labels, numbers, last, ddenominator[..], dtarget[..] -> dx[..,v]:
//       dx_v = ddenominator * exp(x_v - m) + dtarget * (class_weight + label_weight * [..])
//
// `numbers` ascend, without repetition; negative ones at the end are padding, which counts for
// nothing and has gradient 0. `last` is the highest number that any rank has. An index counts from
// the end if it is negative; one that is not in -last - 1 .. last is an error, and so is a label
// that is neither in 0 .. last nor ignore_index.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_VOCABULARY_H
#define TBC_RUNTIME_KERNELS_VOCABULARY_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &vocabularyKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_VOCABULARY_H
