//===- Values.h - Numbers as a rank holds them -------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_VALUES_H
#define TBC_RUNTIME_TRAIN_VALUES_H

#include "runtime/kernels/Tensor.h"

#include <vector>

namespace tbc::train {

/// Returns a tensor with these elements, or zeros if `values` is empty. Integers must be exact.
inline kernels::Tensor tensorOf(const kernels::TensorType &type, kernels::Arith arith,
                                const std::vector<double> &values) {
  if (values.empty())
    return kernels::Tensor::zeros(type, arith);
  if (kernels::isFloat(type.dtype))
    return kernels::Tensor::fromDoubles(type, arith, values);
  return kernels::Tensor::fromInts(type, std::vector<int64_t>(values.begin(), values.end()));
}

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_VALUES_H
