//===- Indexing.h - Kernels that read and write by index -------------------===//
//
// Part of tbc.
//
//   gather{dim}         table, indices -> the table with dim replaced by the dims of indices, which
//   select
//                       along it.
//   scatter_add{dim}    updates, indices -> of the table's shape; each update is added where gather
//   would
//                       have read it, zeros elsewhere. The gradient of gather.
//
// An index outside 0 .. size - 1 is an error: ONNX's negative indices are normalised by whoever
// reads them.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_INDEXING_H
#define TBC_RUNTIME_KERNELS_INDEXING_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &indexingKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_INDEXING_H
