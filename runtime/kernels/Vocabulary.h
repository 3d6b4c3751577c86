//===- Vocabulary.h - Kernels over numbered rows and classes ---------------===//
//
// Part of tbc.
//
//   embedding       table[v, d..], indices[i..], numbers[v], last[] -> y[i.., d..]: the row of the
//                   table with the index as its number; 0 if no row has it
//   embedding_grad  updates[i.., d..], indices, numbers, last -> dtable[v, d..]: each update is
//                   added to the row with its number; zeros elsewhere
//   class_max       x[..,v], numbers[v] -> m[..]: the largest x_v, NaN if one is; 0 in residues
//   class_sums{ignore_index, label_weight, class_weight}
//                   x[..,v], m[..], labels[..], numbers[v], last[] -> denominator[..], target[..]:
//       denominator = sum_v exp(x_v - m)
//       target      = sum_v x_v * (class_weight + label_weight * [numbers_v = label])
//   class_sums_grad{..}   x, m, labels, numbers, last, ddenominator[..], dtarget[..] -> dx[..,v]:
//       dx_v = ddenominator * exp(x_v - m) + dtarget * (class_weight + label_weight * [..])
//
// `numbers` ascend, without repetition. Negative ones at the end are padding: they have no effect,
// and gradient 0. `last` is the highest number on any rank. A negative index counts from the end.
// An index outside -last - 1 .. last is an error, and so is a label outside 0 .. last, except
// ignore_index.
//
// Example: a vocabulary of 5 on 2 ranks: rank 1 has numbers {3, 4, -1} and last = 4, so index 4
// reads its row 1, and index 2 gives 0 there.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_VOCABULARY_H
#define TBC_RUNTIME_KERNELS_VOCABULARY_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &vocabularyKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_VOCABULARY_H
