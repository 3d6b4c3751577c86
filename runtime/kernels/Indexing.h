//===- Indexing.h - Kernels that read and write by index -------------------===//
//
// Part of tbc.
//
//   gather{dim}         table, indices -> the table with dim replaced by the dims of indices, which
//                       select along it.
//   scatter_add{dim}    updates, indices -> of the table's shape; each update is added where gather
//                       would have read it, zeros elsewhere. The gradient of gather.
//   topk{dim,largest}   input -> the first elements along dim in descending (ascending) order and
//                       their indices; as many as the results have. The lower index first of
//                       equals.
//   gather_elements{dim}       table, indices -> of the indices' shape, which is the table's but
//   for
//                              dim: each index selects along dim at its own place.
//   scatter_elements_add{dim}  updates, indices -> of the table's shape: its gradient.
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
