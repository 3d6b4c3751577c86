//===- Pooling.cpp - Pooling and its gradients -----------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Pooling.h"
#include "runtime/kernels/Windows.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

Windows poolWindows(const Attrs &attrs, const Shape &x, const Shape &y) {
  require(x.size() >= 2 && y.size() == x.size() && x[0] == y[0] && x[1] == y[1],
          "pooling keeps the rank, the batch and the channels");
  return makeWindows(attrs, attrs.getInts("kernel"), spatialDims(x), spatialDims(y));
}

/// Calls fn(position in y, the window's ascending indices in the whole of x) for every position of
/// every plane of x.
template <typename Fn> void forEachWindow(const Windows &windows, int64_t planes, Fn &&fn) {
  std::vector<int64_t> members;
  for (int64_t position = 0; position < windows.positions; ++position) {
    std::vector<int64_t> inPlane;
    for (int64_t tap = 0; tap < windows.taps; ++tap)
      if (windows.at(tap, position) >= 0)
        inPlane.push_back(windows.at(tap, position));
    require(!inPlane.empty(), "a pooling window lies entirely in the padding");
    for (int64_t plane = 0; plane < planes; ++plane) {
      members.clear();
      for (int64_t index : inPlane)
        members.push_back(plane * windows.inputs + index);
      fn(plane * windows.positions + position, members);
    }
  }
}

/// The first of equal elements. NaN is the largest, the last NaN of several, as in PyTorch.
template <typename T>
int64_t indexOfLargest(const Operand<T> &x, const std::vector<int64_t> &among) {
  int64_t best = among[0];
  for (int64_t index : among)
    if (less(x[best], x[index]) || isNaN(x[index]))
      best = index;
  return best;
}

/// y[position] = fn(windows, x, the window's indices of x).
template <typename Fn>
Tensors pool(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes, Fn &&fn) {
  requireCounts(inputs, 1, resultTypes, 1);
  const Shape &shape = inputs[0].shape();
  Windows windows = poolWindows(attrs, shape, resultTypes[0].shape);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]);
    std::vector<T> y(numElements(resultTypes[0].shape));
    forEachWindow(windows, shape[0] * shape[1],
                  [&](int64_t position, const std::vector<int64_t> &members) {
                    y[position] = fn(windows, x, members);
                  });
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors maxPool(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  return pool(context, attrs, inputs, resultTypes,
              [](const Windows &, const auto &x, const std::vector<int64_t> &members) {
                return x[indexOfLargest(x, members)];
              });
}

Tensors maxPoolGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                    const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  const Shape &shape = inputs[0].shape();
  requireShape("dx", resultTypes[0].shape, shape);
  Windows windows = poolWindows(attrs, shape, inputs[1].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), dy(inputs[1]);
    std::vector<Sum<T>> dx(x.size());
    forEachWindow(windows, shape[0] * shape[1],
                  [&](int64_t position, const std::vector<int64_t> &members) {
                    dx[indexOfLargest(x, members)].add(dy[position]);
                  });
    return {makeResult(context, resultTypes[0], resultsOf(dx))};
  });
}

/// The divisor of a window with `members` elements inside the input.
int64_t divisor(const Attrs &attrs, const Windows &windows, size_t members) {
  return attrs.getBool("count_include_pad", false) ? windows.taps : int64_t(members);
}

template <typename T>
T average(const Attrs &attrs, const Windows &windows, const Operand<T> &x,
          const std::vector<int64_t> &members) {
  Sum<T> sum;
  for (int64_t index : members)
    sum.add(x[index]);
  return sum.result() / integer<T>(divisor(attrs, windows, members.size()));
}

Tensors avgPool(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  return pool(context, attrs, inputs, resultTypes,
              [&](const Windows &windows, const auto &x, const std::vector<int64_t> &members) {
                return average(attrs, windows, x, members);
              });
}

Tensors avgPoolGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                    const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  const Shape &shape = resultTypes[0].shape;
  Windows windows = poolWindows(attrs, shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]);
    std::vector<Sum<T>> dx(numElements(shape));
    forEachWindow(windows, shape[0] * shape[1],
                  [&](int64_t position, const std::vector<int64_t> &members) {
                    T share = dy[position] / integer<T>(divisor(attrs, windows, members.size()));
                    for (int64_t index : members)
                      dx[index].add(share);
                  });
    return {makeResult(context, resultTypes[0], resultsOf(dx))};
  });
}

} // namespace

const KernelTable &tbc::kernels::poolingKernels() {
  static const KernelTable table = {{"max_pool", maxPool},
                                    {"max_pool_grad", maxPoolGrad},
                                    {"avg_pool", avgPool},
                                    {"avg_pool_grad", avgPoolGrad}};
  return table;
}
