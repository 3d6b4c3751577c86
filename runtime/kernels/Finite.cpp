//===- Finite.cpp - Whether all elements are finite -----------------------===//

#include "runtime/kernels/Finite.h"

#include <algorithm>
#include <cmath>

namespace tbc::kernels {

template <typename T> static bool areFinite(const std::vector<T> &elements) {
  return std::all_of(elements.begin(), elements.end(), [](T x) { return std::isfinite(x); });
}

bool isFinite(const Tensor &tensor) {
  if (tensor.holds<float>())
    return areFinite(tensor.data<float>());
  return !tensor.holds<double>() || areFinite(tensor.data<double>());
}

} // namespace tbc::kernels
