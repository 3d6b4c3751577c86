//===- Packing.h - Shards of tensors as lists of indices -------------------===//
//
// Part of tbc. Plain C++. Every pack and unpack around a collective is: which elements, in which
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

/// The row-major index in a tensor of shape `full` of each element that group index `index` of n
/// holds when the tensor is cut along `dim` by `segments`, in the order of the local tensor; -1 for
/// the padding of a flat cut (dim = Communication::flatDim).
Indices shardIndices(const kernels::Shape &full, int dim,
                     const std::vector<program::SegmentShape> &segments, int64_t n, int64_t index);

/// A tensor of type `type` whose i-th element is element indices[i] of `tensor`; 0 where that is
/// -1.
kernels::Tensor pick(const kernels::Tensor &tensor, const Indices &indices,
                     const kernels::TensorType &type);

/// The inverse of picks: element i of part p becomes element indices[p][i] of the result; those
/// with index -1 are dropped. Elements that no part has are 0.
kernels::Tensor place(const std::vector<kernels::Tensor> &parts,
                      const std::vector<Indices> &indices, const kernels::TensorType &type);

/// `tensor` as a tensor of `type`, which has the same shape; between float types a conversion as
/// the arithmetic has it. KernelError if the tensor has another shape, is not held in `arith`, or
/// turns a float into an integer or back.
kernels::Tensor convert(const kernels::Tensor &tensor, const kernels::TensorType &type,
                        kernels::Arith arith);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_PACKING_H
