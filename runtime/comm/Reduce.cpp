//===- Reduce.cpp - The arithmetic of collectives on one machine -----------===//

#include "runtime/comm/Reduce.h"
#include "runtime/kernels/Scalar.h"
#include "runtime/kernels/Support.h"

#include <cassert>

namespace tbc::comm {

using kernels::Residue;
using kernels::Tensor;

Tensor reduce(ReduceKind kind, const std::vector<Tensor> &inputs) {
  const Tensor &first = inputs.front();
  return kernels::dispatch(first, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> result = first.data<T>();
    if (kind == ReduceKind::Max) {
      for (size_t r = 1; r < inputs.size(); ++r) {
        const std::vector<T> &data = inputs[r].data<T>();
        for (size_t i = 0; i < result.size(); ++i)
          result[i] = kernels::larger(result[i], data[i]);
      }
      return Tensor(first.type(), std::move(result));
    }
    std::vector<const std::vector<T> *> rows;
    for (const Tensor &input : inputs)
      rows.push_back(&input.data<T>());
    for (size_t i = 0; i < result.size(); ++i) {
      kernels::Sum<T> sum;
      for (const std::vector<T> *row : rows)
        sum.add((*row)[i]);
      result[i] = sum.result();
    }
    return Tensor(first.type(), std::move(result));
  });
}

Tensor joinFlat(const std::vector<Tensor> &inputs) {
  return kernels::dispatch(inputs.front(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> joined;
    for (const Tensor &input : inputs) {
      const std::vector<T> &data = input.data<T>();
      joined.insert(joined.end(), data.begin(), data.end());
    }
    int64_t size = static_cast<int64_t>(joined.size());
    return Tensor({inputs.front().dtype(), {size}}, std::move(joined));
  });
}

Tensor cutFlat(const Tensor &tensor, int64_t first, int64_t count) {
  assert(first >= 0 && first + count <= tensor.numElements() && "a cut lies within its tensor");
  return kernels::dispatch(tensor, [&](auto zero) {
    using T = decltype(zero);
    auto begin = tensor.data<T>().begin() + first;
    return Tensor({tensor.dtype(), {count}}, std::vector<T>(begin, begin + count));
  });
}

} // namespace tbc::comm
