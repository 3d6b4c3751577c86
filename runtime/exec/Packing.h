//===- Packing.h - Shards of tensors as lists of indices -------------------===//
//
// Part of tbc. Plain C++. Every pack and unpack around a collective is a list of elements in an
// order.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_PACKING_H
#define TBC_RUNTIME_EXEC_PACKING_H

#include "runtime/abi/Program.h"
#include "runtime/kernels/Tensor.h"

#include <cstdint>
#include <vector>

namespace tbc::runtime {

using Indices = std::vector<int64_t>;

/// Returns the row-major index in a tensor of shape `full` of each element held by index `index` of
/// n. The tensor is cut along `dim` by `segments`; the order is that of the local tensor. The
/// padding of a flat cut (dim = Communication::flatDim) has index -1. Example: a flat cut of 5
/// elements over n = 2 gives {0, 1, 2} and {3, 4, -1}.
Indices shardIndices(const kernels::Shape &full, int dim,
                     const std::vector<program::SegmentShape> &segments, int64_t n, int64_t index);

/// Returns a tensor of type `type`. Its element i is element indices[i] of `tensor`, or 0 if that
/// index is -1.
kernels::Tensor pick(const kernels::Tensor &tensor, const Indices &indices,
                     const kernels::TensorType &type);

/// Inverts several calls of `pick`: element i of part p becomes element indices[p][i] of the
/// result. Elements with index -1 are dropped. Elements in no part are 0.
kernels::Tensor place(const std::vector<kernels::Tensor> &parts,
                      const std::vector<Indices> &indices, const kernels::TensorType &type);

/// Returns `tensor` as a tensor of `type`, with the same shape. Conversions between float types
/// follow the arithmetic. KernelError if the shapes differ, the tensor is not held in `arith`, or
/// the conversion is between float and integer.
kernels::Tensor convert(const kernels::Tensor &tensor, const kernels::TensorType &type,
                        kernels::Arith arith);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_PACKING_H
