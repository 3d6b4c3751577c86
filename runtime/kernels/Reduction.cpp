//===- Reduction.cpp - Kernels that reduce over dims -----------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Reduction.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// The offsets of the reduced elements: result i reads kept[i] + every entry of `reduced`.
struct Reduced {
  std::vector<int64_t> kept, reduced;
};

Reduced splitOffsets(const Attrs &attrs, const Tensors &inputs, const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  const std::vector<int64_t> &dims = attrs.getInts("dims");
  const Shape &shape = inputs[0].shape();
  for (int64_t dim : dims)
    requireDim(dim, shape.size());
  requireShape("the result", resultTypes[0].shape, without(shape, dims));
  Shape strides = rowMajorStrides(shape);
  return {listOffsets(without(shape, dims), without(strides, dims)),
          listOffsets(only(shape, dims), only(strides, dims))};
}

Tensors reduceSum(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  Reduced offsets = splitOffsets(attrs, inputs, resultTypes);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> y;
    y.reserve(offsets.kept.size());
    for (int64_t base : offsets.kept) {
      Sum<T> sum;
      for (int64_t offset : offsets.reduced)
        sum.add(x[base + offset]);
      y.push_back(sum.result());
    }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors reduceMax(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  Reduced offsets = splitOffsets(attrs, inputs, resultTypes);
  require(!offsets.reduced.empty(), "the maximum over no elements is undefined");
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> y;
    y.reserve(offsets.kept.size());
    for (int64_t base : offsets.kept) {
      T largest = x[base];
      for (int64_t offset : offsets.reduced)
        largest = larger(largest, x[base + offset]);
      y.push_back(largest);
    }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors stabilizerMax(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  if (!isModular(context.arith))
    return reduceMax(context, attrs, inputs, resultTypes);
  splitOffsets(attrs, inputs, resultTypes); // the same checks
  return {Tensor::zeros(resultTypes[0], context.arith)};
}

Tensors runningSum(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                   const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  const Shape &shape = inputs[0].shape();
  requireShape("the result", resultTypes[0].shape, shape);
  int64_t dim = requireDim(attrs.getInt("dim"), shape.size());
  bool isExclusive = attrs.getBool("exclusive", false), isReverse = attrs.getBool("reverse", false);
  int64_t size = shape[dim], stride = rowMajorStrides(shape)[dim];
  std::vector<int64_t> starts =
      listOffsets(without(shape, {dim}), without(rowMajorStrides(shape), {dim}));
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> y(inputs[0].numElements());
    for (int64_t start : starts) {
      Sum<T> sum;
      for (int64_t i = 0; i < size; ++i) {
        int64_t at = start + (isReverse ? size - 1 - i : i) * stride;
        if (isExclusive)
          y[at] = sum.result();
        sum.add(x[at]);
        if (!isExclusive)
          y[at] = sum.result();
      }
    }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

} // namespace

const KernelTable &tbc::kernels::reductionKernels() {
  static const KernelTable table = {{"reduce_sum", reduceSum},
                                    {"reduce_max", reduceMax},
                                    {"stabilizer_max", stabilizerMax},
                                    {"running_sum", runningSum}};
  return table;
}
