//===- Reduce.cpp - The arithmetic of collectives on one machine -----------===//

#include "runtime/comm/Reduce.h"
#include "runtime/comm/Fold.h"
#include "runtime/kernels/Scalar.h"
#include "runtime/kernels/Support.h"

#include <cassert>
#include <cmath>

namespace tbc::comm {

using kernels::Tensor;

std::string_view name(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum:
    return "sum";
  case ReduceKind::Max:
    return "max";
  case ReduceKind::Min:
    return "min";
  case ReduceKind::Product:
    return "product";
  case ReduceKind::Avg:
    return "avg";
  case ReduceKind::BitAnd:
    return "bit_and";
  case ReduceKind::BitOr:
    return "bit_or";
  case ReduceKind::BitXor:
    return "bit_xor";
  case ReduceKind::PremulSum:
    return "premul_sum";
  }
  return "";
}

namespace {

/// Returns one element of the result, from the elements of all inputs in order.
template <typename T> T reduceElement(const Reduction &reduction, const std::vector<T> &terms) {
  auto state = beginFold(reduction, terms[0]);
  for (size_t i = 1; i < terms.size(); ++i)
    state = fold(reduction, state, terms[i]);
  return endFold<T>(reduction, state, int64_t(terms.size()));
}

bool isBitwise(ReduceKind kind) {
  return kind == ReduceKind::BitAnd || kind == ReduceKind::BitOr || kind == ReduceKind::BitXor;
}

} // namespace

void requireReducible(Reduction reduction, kernels::DType dtype) {
  bool isFloat = kernels::isFloat(dtype);
  kernels::require(!isFloat || !isBitwise(reduction.kind), [&] {
    return std::string(name(reduction.kind)) + " is for integers, not for " +
           std::string(kernels::name(dtype));
  });
  kernels::require(isFloat || reduction.factor == std::trunc(reduction.factor),
                   "integers are multiplied by an integer only");
}

Tensor reduce(Reduction reduction, const std::vector<Tensor> &inputs) {
  const Tensor &first = inputs.front();
  requireReducible(reduction, first.dtype());
  return kernels::dispatch(first, [&](auto zero) {
    using T = decltype(zero);
    std::vector<const T *> rows;
    for (const Tensor &input : inputs)
      rows.push_back(input.data<T>().data());
    std::vector<T> result(first.numElements()), terms(inputs.size());
    // The path of gradients: without the indirection per element.
    for (size_t i = 0; reduction.kind == ReduceKind::Sum && i < result.size(); ++i) {
      kernels::Sum<T> sum;
      for (const T *row : rows)
        sum.add(row[i]);
      result[i] = sum.result();
    }
    for (size_t i = 0; reduction.kind != ReduceKind::Sum && i < result.size(); ++i) {
      for (size_t r = 0; r < rows.size(); ++r)
        terms[r] = rows[r][i];
      result[i] = reduceElement(reduction, terms);
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
