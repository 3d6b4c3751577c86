//===- Indexing.h - Kernels that read and write by index -------------------===//
//
// Part of tbc.
//
//   gather{dim}         table, indices -> the table with dim replaced by the dims of indices, which
//                       select along it.
//   scatter_add{dim}    updates, indices -> the table's shape; each update is added to the element
//                       that gather would read; zeros elsewhere. The gradient of gather.
//   topk{dim,largest}   input -> the first elements along dim in descending (ascending) order and
//                       their indices; as many as the results have. Among equals, the lower index
//                       is first. NaN is above all numbers.
//   gather_elements{dim}       table, indices -> the indices' shape, which differs from the table's
//                              in dim only: each index selects along dim at its own position.
//   scatter_elements_add{dim}  updates, indices -> the table's shape: its gradient.
//
// Example: gather{0} of [a, b, c] and indices [2, 0] is [c, a].
//
// A negative index counts from the end; one outside -size .. size - 1 is an error.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_INDEXING_H
#define TBC_RUNTIME_KERNELS_INDEXING_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &indexingKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_INDEXING_H
