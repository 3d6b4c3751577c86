//===- Indexing.cpp - Kernels that read and write by index -----------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Indexing.h"

#include <algorithm>
#include <numeric>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// The shape of gather's result: `table` with dim `dim` replaced by `indices`.
Shape gatheredShape(const Shape &table, const Shape &indices, int64_t dim) {
  requireDim(dim, table.size());
  Shape shape(table.begin(), table.begin() + dim);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), table.begin() + dim + 1, table.end());
  return shape;
}

/// The indices with negative ones counted from the end.
std::vector<int64_t> placesOf(const KernelContext &context, const Tensor &indices, int64_t size) {
  std::vector<int64_t> places = indices.data<int64_t>();
  for (int64_t &index : places) {
    index = indexIn(context, index, size);
    require(index >= -size && index < size, [&] {
      return "index " + std::to_string(index) + " is out of range for a dim of size " +
             std::to_string(size);
    });
    index += index < 0 ? size : 0;
  }
  return places;
}

Tensors gather(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
               const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  int64_t dim = attrs.getInt("dim");
  DimSplit table = splitAt(inputs[0].shape(), dim);
  requireShape("the result", resultTypes[0].shape,
               gatheredShape(inputs[0].shape(), inputs[1].shape(), dim));
  std::vector<int64_t> indices = placesOf(context, inputs[1], table.size);
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
  std::vector<int64_t> indices = placesOf(context, inputs[1], table.size);
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

/// Whether two shapes agree except in dim `dim`.
bool agreesBeside(Shape a, Shape b, int64_t dim) {
  requireDim(dim, a.size());
  requireDim(dim, b.size());
  a[dim] = b[dim] = 0;
  return a == b;
}

/// Whether `a` is above `b`. NaN is above all numbers, as in PyTorch.
template <typename T> bool isAbove(T a, T b) { return less(b, a) || (isNaN(a) && !isNaN(b)); }

Tensors topk(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 2);
  int64_t dim = attrs.getInt("dim");
  bool largest = attrs.getBool("largest");
  DimSplit from = splitAt(inputs[0].shape(), dim), to = splitAt(resultTypes[0].shape, dim);
  require(agreesBeside(inputs[0].shape(), resultTypes[0].shape, dim) && to.size <= from.size,
          [&] { return "topk cannot take " + toString(resultTypes[0]); });
  requireShape("the indices", resultTypes[1].shape, resultTypes[0].shape);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> values(numElements(resultTypes[0].shape));
    std::vector<int64_t> indices(values.size()), order(from.size);
    for (int64_t outer = 0; outer < from.outer; ++outer)
      for (int64_t inner = 0; inner < from.inner; ++inner) {
        auto at = [&](int64_t i) { return x[(outer * from.size + i) * from.inner + inner]; };
        std::iota(order.begin(), order.end(), 0);
        // Equal elements have the order of their indices, so the sort need not be stable.
        std::partial_sort(order.begin(), order.begin() + to.size, order.end(),
                          [&](int64_t a, int64_t b) {
                            T first = at(a), second = at(b);
                            bool above = isAbove(first, second), below = isAbove(second, first);
                            if (above || below)
                              return largest ? above : below;
                            return a < b;
                          });
        for (int64_t k = 0; k < to.size; ++k) {
          int64_t place = (outer * to.size + k) * to.inner + inner;
          values[place] = at(order[k]);
          indices[place] = order[k];
        }
      }
    return {makeResult(context, resultTypes[0], std::move(values)),
            Tensor(resultTypes[1], std::move(indices))};
  });
}

/// Calls visit(element of the table, element of the indices) for each index.
template <typename Fn>
void forEachChoice(const KernelContext &context, const Shape &table, const Tensor &indices,
                   int64_t dim, Fn &&visit) {
  require(agreesBeside(table, indices.shape(), dim), "indices do not lie beside the table's dims");
  DimSplit from = splitAt(table, dim), chosen = splitAt(indices.shape(), dim);
  std::vector<int64_t> index = placesOf(context, indices, from.size);
  for (int64_t i = 0; i < int64_t(index.size()); ++i) {
    int64_t outer = i / (chosen.size * chosen.inner), inner = i % chosen.inner;
    visit((outer * from.size + index[i]) * from.inner + inner, i);
  }
}

Tensors gatherElements(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                       const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, inputs[1].shape());
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const std::vector<T> &x = inputs[0].data<T>();
    std::vector<T> y(numElements(resultTypes[0].shape));
    forEachChoice(context, inputs[0].shape(), inputs[1], attrs.getInt("dim"),
                  [&](int64_t from, int64_t to) { y[to] = x[from]; });
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors scatterElementsAdd(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                           const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  requireShape("the updates", inputs[0].shape(), inputs[1].shape());
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const std::vector<T> &updates = inputs[0].data<T>();
    std::vector<Sum<T>> sums(numElements(resultTypes[0].shape));
    forEachChoice(context, resultTypes[0].shape, inputs[1], attrs.getInt("dim"),
                  [&](int64_t to, int64_t from) { sums[to].add(updates[from]); });
    std::vector<T> y(sums.size());
    std::transform(sums.begin(), sums.end(), y.begin(),
                   [](const Sum<T> &sum) { return sum.result(); });
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

} // namespace

const KernelTable &tbc::kernels::indexingKernels() {
  static const KernelTable table = {{"gather", gather},
                                    {"scatter_add", scatterAdd},
                                    {"topk", topk},
                                    {"gather_elements", gatherElements},
                                    {"scatter_elements_add", scatterElementsAdd}};
  return table;
}
