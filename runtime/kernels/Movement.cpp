//===- Movement.cpp - Kernels that move elements ---------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Movement.h"

#include <algorithm>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// Returns the tensor with element i = the input's element at offset sum(i[d] * strides[d]).
Tensor stridedView(const KernelContext &context, const Tensor &input, const TensorType &resultType,
                   const Shape &strides) {
  return dispatch(input, [&](auto zero) {
    using T = decltype(zero);
    const T *x = input.data<T>().data();
    std::vector<T> y(numElements(resultType.shape));
    // The last dim is the inner loop; the others are a list of offsets.
    Shape outerShape = resultType.shape, outerStrides = strides;
    int64_t innerSize = 1, innerStride = 0;
    if (!outerShape.empty()) {
      innerSize = outerShape.back(), innerStride = outerStrides.back();
      outerShape.pop_back(), outerStrides.pop_back();
    }
    T *cursor = y.data();
    for (int64_t offset : listOffsets(outerShape, outerStrides))
      for (int64_t i = 0; i < innerSize; ++i)
        *cursor++ = x[offset + i * innerStride];
    return makeResult(context, resultType, std::move(y));
  });
}

Tensors broadcast(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  const std::vector<int64_t> &dims = attrs.getInts("dims");
  const Shape &from = inputs[0].shape(), &to = resultTypes[0].shape;
  require(dims.size() == from.size(), "broadcast needs one entry of 'dims' per input dim");
  Shape inputStrides = rowMajorStrides(from), strides(to.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    requireDim(dims[i], to.size());
    require(to[dims[i]] == from[i], [&] {
      return "broadcast maps input dim " + std::to_string(i) + " of size " +
             std::to_string(from[i]) + " to an output dim of size " + std::to_string(to[dims[i]]);
    });
    strides[dims[i]] = inputStrides[i];
  }
  return {stridedView(context, inputs[0], resultTypes[0], strides)};
}

Tensors transpose(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  const std::vector<int64_t> &permutation = attrs.getInts("permutation");
  const Shape &from = inputs[0].shape();
  require(permutation.size() == from.size(), "'permutation' needs one entry per dim");
  Shape inputStrides = rowMajorStrides(from), strides, to;
  std::vector<bool> seen(from.size(), false);
  for (int64_t dim : permutation) {
    require(!seen[requireDim(dim, from.size())], "'permutation' names a dim twice");
    seen[dim] = true;
    to.push_back(from[dim]);
    strides.push_back(inputStrides[dim]);
  }
  requireShape("the result", resultTypes[0].shape, to);
  return {stridedView(context, inputs[0], resultTypes[0], strides)};
}

Tensors reshape(const KernelContext &, const Attrs &, const Tensors &inputs,
                const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  return {inputs[0].reshaped(resultTypes[0].shape)};
}

Tensors slice(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
              const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  int64_t dim = attrs.getInt("dim"), offset = attrs.getInt("offset"), size = attrs.getInt("size");
  DimSplit from = splitAt(inputs[0].shape(), dim);
  require(offset >= 0 && size >= 0 && offset + size <= from.size, [&] {
    return "slice " + std::to_string(offset) + " .. " + std::to_string(offset + size) +
           " leaves dim " + std::to_string(dim) + " of size " + std::to_string(from.size);
  });
  Shape to = inputs[0].shape();
  to[dim] = size;
  requireShape("the result", resultTypes[0].shape, to);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data() + offset * from.inner;
    std::vector<T> y;
    y.reserve(numElements(to));
    for (int64_t outer = 0; outer < from.outer; ++outer, x += from.size * from.inner)
      y.insert(y.end(), x, x + size * from.inner);
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors concat(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
               const Types &resultTypes) {
  require(!inputs.empty(), "concat needs an operand");
  requireCounts(inputs, inputs.size(), resultTypes, 1);
  int64_t dim = attrs.getInt("dim");
  DimSplit to = splitAt(resultTypes[0].shape, dim);
  int64_t total = 0;
  for (const Tensor &input : inputs) {
    Shape expected = resultTypes[0].shape;
    expected[dim] = splitAt(input.shape(), dim).size;
    requireShape("an operand", input.shape(), expected);
    total += expected[dim];
  }
  require(total == to.size, "the operands' sizes along 'dim' do not add up to the result's");
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    std::vector<T> y(numElements(resultTypes[0].shape));
    int64_t offset = 0;
    for (const Tensor &input : inputs) {
      const T *x = input.data<T>().data();
      int64_t run = input.shape()[dim] * to.inner;
      for (int64_t outer = 0; outer < to.outer; ++outer)
        std::copy_n(x + outer * run, run, y.data() + outer * to.size * to.inner + offset);
      offset += run;
    }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors pad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
            const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  int64_t dim = attrs.getInt("dim"), low = attrs.getInt("low"), high = attrs.getInt("high");
  require(low >= 0 && high >= 0, "pad takes no negative amounts; use slice");
  DimSplit from = splitAt(inputs[0].shape(), dim);
  Shape to = inputs[0].shape();
  to[dim] += low + high;
  requireShape("the result", resultTypes[0].shape, to);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> y(numElements(to), zero);
    int64_t run = from.size * from.inner;
    for (int64_t outer = 0; outer < from.outer; ++outer)
      std::copy_n(x + outer * run, run, y.data() + (outer * to[dim] + low) * from.inner);
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors iota(const KernelContext &, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes) {
  requireCounts(inputs, 0, resultTypes, 1);
  DimSplit to = splitAt(resultTypes[0].shape, attrs.getInt("dim"));
  std::vector<int64_t> y;
  y.reserve(numElements(resultTypes[0].shape));
  for (int64_t outer = 0; outer < to.outer; ++outer)
    for (int64_t i = 0; i < to.size; ++i)
      y.insert(y.end(), to.inner, i);
  return {Tensor(resultTypes[0], std::move(y))};
}

Tensors constant(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                 const Types &resultTypes) {
  requireCounts(inputs, 0, resultTypes, 1);
  const AttrValue *value = attrs.find("value");
  require(value, "attribute 'value' is missing");
  if (const auto *ints = std::get_if<std::vector<int64_t>>(value)) {
    if (!isFloat(resultTypes[0].dtype))
      return {Tensor::fromInts(resultTypes[0], *ints)};
    return {Tensor::fromDoubles(resultTypes[0], context.arith, {ints->begin(), ints->end()})};
  }
  return {Tensor::fromDoubles(resultTypes[0], context.arith, attrs.getDoubles("value"))};
}

Tensors factorSize(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                   const Types &resultTypes) {
  requireCounts(inputs, 0, resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, {});
  int64_t value = attrs.getInt("count") * attrs.getInt("samples");
  return {Tensor::fromDoubles(resultTypes[0], context.arith, {double(value)})};
}

} // namespace

const KernelTable &tbc::kernels::movementKernels() {
  static const KernelTable table = {
      {"broadcast", broadcast}, {"transpose", transpose}, {"reshape", reshape},
      {"slice", slice},         {"concat", concat},       {"pad", pad},
      {"iota", iota},           {"constant", constant},   {"factor_size", factorSize},
  };
  return table;
}
