//===- Indexing.cpp - Kernels that read and write by index -----------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Indexing.h"

#include <algorithm>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// The shape of gather's result: `indices` in the place of dim `dim` of `table`.
Shape gatheredShape(const Shape &table, const Shape &indices, int64_t dim) {
  requireDim(dim, table.size());
  Shape shape(table.begin(), table.begin() + dim);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), table.begin() + dim + 1, table.end());
  return shape;
}

void checkIndices(const std::vector<int64_t> &indices, int64_t size) {
  for (int64_t index : indices)
    require(index >= 0 && index < size, [&] {
      return "index " + std::to_string(index) + " is out of range for a dim of size " +
             std::to_string(size);
    });
}

Tensors gather(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
               const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  int64_t dim = attrs.getInt("dim");
  DimSplit table = splitAt(inputs[0].shape(), dim);
  requireShape("the result", resultTypes[0].shape,
               gatheredShape(inputs[0].shape(), inputs[1].shape(), dim));
  const std::vector<int64_t> &indices = inputs[1].data<int64_t>();
  checkIndices(indices, table.size);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> y;
    y.reserve(numElements(resultTypes[0].shape));
    for (int64_t outer = 0; outer < table.outer; ++outer)
      for (int64_t index : indices) {
        const T *row = x + (outer * table.size + index) * table.inner;
        y.insert(y.end(), row, row + table.inner);
      }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors scatterAdd(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                   const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  int64_t dim = attrs.getInt("dim");
  DimSplit table = splitAt(resultTypes[0].shape, dim);
  requireShape("the updates", inputs[0].shape(),
               gatheredShape(resultTypes[0].shape, inputs[1].shape(), dim));
  const std::vector<int64_t> &indices = inputs[1].data<int64_t>();
  checkIndices(indices, table.size);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *update = inputs[0].data<T>().data();
    std::vector<Sum<T>> sums(numElements(resultTypes[0].shape));
    for (int64_t outer = 0; outer < table.outer; ++outer)
      for (int64_t index : indices) {
        Sum<T> *row = sums.data() + (outer * table.size + index) * table.inner;
        for (int64_t i = 0; i < table.inner; ++i)
          row[i].add(*update++);
      }
    std::vector<T> y(sums.size());
    std::transform(sums.begin(), sums.end(), y.begin(),
                   [](const Sum<T> &sum) { return sum.result(); });
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

} // namespace

const KernelTable &tbc::kernels::indexingKernels() {
  static const KernelTable table = {{"gather", gather}, {"scatter_add", scatterAdd}};
  return table;
}
