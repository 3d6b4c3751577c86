//===- Reduce.h - The arithmetic of collectives on one machine -------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_REDUCE_H
#define TBC_RUNTIME_COMM_REDUCE_H

#include "runtime/comm/Communicator.h"

namespace tbc::comm {

/// Returns the elementwise reduction of tensors of one type and arithmetic, with the shape of the
/// first. Sums and products follow the order of `inputs` and are rounded once. Residues compare by
/// their order (`orderKey`). KernelError for a bitwise reduction of floats, and for integers times
/// a fractional factor.
kernels::Tensor reduce(Reduction reduction, const std::vector<kernels::Tensor> &inputs);

/// Throws the KernelErrors of `reduce` for elements of this dtype.
void requireReducible(Reduction reduction, kernels::DType dtype);

/// Returns the one-dimensional concatenation of tensors of one dtype and arithmetic, at least one.
kernels::Tensor joinFlat(const std::vector<kernels::Tensor> &inputs);

/// Returns elements first to first + count of a tensor, one-dimensional.
kernels::Tensor cutFlat(const kernels::Tensor &tensor, int64_t first, int64_t count);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_REDUCE_H
