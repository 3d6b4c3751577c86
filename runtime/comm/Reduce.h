//===- Reduce.h - The arithmetic of collectives on one machine -------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_REDUCE_H
#define TBC_RUNTIME_COMM_REDUCE_H

#include "runtime/comm/Communicator.h"

namespace tbc::comm {

/// The elementwise reduction of tensors of one type and arithmetic, of the first one's shape. Sums
/// and products follow the order of `inputs` and are rounded once; residues compare by their order
/// (orderKey). KernelError for a bitwise reduction of floats, and for integers times a factor that
/// is none.
kernels::Tensor reduce(Reduction reduction, const std::vector<kernels::Tensor> &inputs);

/// The KernelErrors of `reduce`, for elements of this dtype.
void requireReducible(Reduction reduction, kernels::DType dtype);

/// The one-dimensional concatenation of tensors of one dtype and arithmetic, at least one.
kernels::Tensor joinFlat(const std::vector<kernels::Tensor> &inputs);

/// Elements first to first + count of a tensor, one-dimensional.
kernels::Tensor cutFlat(const kernels::Tensor &tensor, int64_t first, int64_t count);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_REDUCE_H
