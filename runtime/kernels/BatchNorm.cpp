//===- BatchNorm.cpp - Batch norm, inference and training form -------------===//
//
// Part of tbc. The formulas stand in Normalization.h.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Normalization.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// fn(flat index) for every element of `channel` of a tensor split at its channel dim.
template <typename Fn> void forEachInChannel(const DimSplit &split, int64_t channel, Fn &&fn) {
  for (int64_t outer = 0; outer < split.outer; ++outer)
    for (int64_t inner = 0; inner < split.inner; ++inner)
      fn((outer * split.size + channel) * split.inner + inner);
}

DimSplit checkChannels(const Tensors &inputs) {
  DimSplit split = splitAt(inputs[0].shape(), 1);
  for (size_t i = 1; i < inputs.size(); ++i)
    requireShape("a per-channel operand", inputs[i].shape(), {split.size});
  return split;
}

Tensors batchNorm(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, 5, resultTypes, 1);
  DimSplit split = checkChannels(inputs);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), scale(inputs[1]), bias(inputs[2]), mean(inputs[3]), var(inputs[4]);
    T epsilon = compositeConstant<T>(inputs[0].dtype(), attrs.getDouble("epsilon"));
    std::vector<T> y(x.size());
    for (int64_t c = 0; c < split.size; ++c) {
      T rstd = rsqrtOf(var[c] + epsilon);
      forEachInChannel(split, c,
                       [&](int64_t i) { y[i] = (x[i] - mean[c]) * rstd * scale[c] + bias[c]; });
    }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors batchNormTrain(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                       const Types &resultTypes) {
  requireCounts(inputs, 5, resultTypes, 3);
  DimSplit split = checkChannels(inputs);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  requireShape("the new running mean", resultTypes[1].shape, {split.size});
  requireShape("the new running variance", resultTypes[2].shape, {split.size});
  int64_t count = split.outer * split.inner;
  require(count > 1, "batch norm in training needs more than one element per channel");
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), scale(inputs[1]), bias(inputs[2]), rmean(inputs[3]), rvar(inputs[4]);
    DType dtype = inputs[0].dtype();
    T epsilon = compositeConstant<T>(dtype, attrs.getDouble("epsilon"));
    T momentum = compositeConstant<T>(dtype, attrs.getDouble("momentum"));
    T fresh = integer<T>(1) - momentum, n = integer<T>(count);
    bool unbiased = attrs.getBool("unbiased", true);
    std::vector<T> y(x.size()), newMean(split.size), newVar(split.size);
    for (int64_t c = 0; c < split.size; ++c) {
      Sum<T> sum, squares;
      forEachInChannel(split, c, [&](int64_t i) { sum.add(x[i]); });
      T mean = sum.result() / n;
      forEachInChannel(split, c, [&](int64_t i) { squares.add((x[i] - mean) * (x[i] - mean)); });
      T var = squares.result() / n, rstd = rsqrtOf(var + epsilon);
      forEachInChannel(split, c,
                       [&](int64_t i) { y[i] = (x[i] - mean) * rstd * scale[c] + bias[c]; });
      newMean[c] = momentum * rmean[c] + fresh * mean;
      T kept = unbiased ? var * n / integer<T>(count - 1) : var;
      newVar[c] = momentum * rvar[c] + fresh * kept;
    }
    return {makeResult(context, resultTypes[0], std::move(y)),
            makeResult(context, resultTypes[1], std::move(newMean)),
            makeResult(context, resultTypes[2], std::move(newVar))};
  });
}

} // namespace

const KernelTable &tbc::kernels::batchNormKernels() {
  static const KernelTable table = {{"batch_norm", batchNorm},
                                    {"batch_norm_train", batchNormTrain}};
  return table;
}
