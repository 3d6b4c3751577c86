//===- Convolution.cpp - Convolution and its two gradients -----------------===//
//
// Part of tbc.
//
// Per sample and group all three are matmuls with the patch matrix: row (channel, tap), column
// position.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Convolution.h"
#include "runtime/kernels/Gemm.h"
#include "runtime/kernels/Windows.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

struct ConvSizes {
  int64_t samples, groups, inChannels, outChannels; // channels per group
  Windows windows;

  int64_t patch() const { return inChannels * windows.taps; }
  /// The offset of sample `n`, group `g` in x and in y, and of group `g` in w.
  int64_t inputAt(int64_t n, int64_t g) const {
    return (n * groups + g) * inChannels * windows.inputs;
  }
  int64_t outputAt(int64_t n, int64_t g) const {
    return (n * groups + g) * outChannels * windows.positions;
  }
  int64_t weightAt(int64_t g) const { return g * outChannels * patch(); }
};

ConvSizes convSizes(const Attrs &attrs, const Shape &x, const Shape &w, const Shape &y) {
  require(x.size() >= 2 && w.size() == x.size() && y.size() == x.size(),
          "convolution needs x, w and y of one rank, at least 2");
  int64_t groups = attrs.getInt("groups", 1);
  require(groups >= 1 && x[1] % groups == 0 && w[0] % groups == 0 && w[1] * groups == x[1] &&
              y[0] == x[0] && y[1] == w[0],
          [&] {
            return "convolution channels do not fit: x has " + std::to_string(x[1]) + ", w " +
                   std::to_string(w[0]) + " of " + std::to_string(w[1]) + ", y " +
                   std::to_string(y[1]) + ", groups " + std::to_string(groups);
          });
  return {x[0], groups, x[1] / groups, w[0] / groups,
          makeWindows(attrs, spatialDims(w), spatialDims(x), spatialDims(y))};
}

/// patches[(channel, tap), position] of one sample and group.
template <typename T>
void gatherPatches(const ConvSizes &sizes, const T *x, std::vector<T> &patches) {
  const Windows &windows = sizes.windows;
  T *cursor = patches.data();
  for (int64_t channel = 0; channel < sizes.inChannels; ++channel, x += windows.inputs)
    for (int64_t index : windows.inputIndex)
      *cursor++ = index < 0 ? T() : x[index];
}

/// b = a transposed; a is rows x columns.
template <typename T>
void transposeInto(int64_t rows, int64_t columns, const T *a, std::vector<T> &b) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      b[j * rows + i] = a[i * columns + j];
}

Tensors conv(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
             const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  ConvSizes sizes = convSizes(attrs, inputs[0].shape(), inputs[1].shape(), resultTypes[0].shape);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), w(inputs[1]);
    std::vector<T> patches(sizes.patch() * sizes.windows.positions);
    std::vector<typename Total<T>::Type> y(numElements(resultTypes[0].shape), 0);
    for (int64_t n = 0; n < sizes.samples; ++n)
      for (int64_t g = 0; g < sizes.groups; ++g) {
        gatherPatches(sizes, x.begin() + sizes.inputAt(n, g), patches);
        multiplyAdd<T>(sizes.outChannels, sizes.windows.positions, sizes.patch(),
                       w.begin() + sizes.weightAt(g), patches.data(),
                       y.data() + sizes.outputAt(n, g));
      }
    return {makeResult(context, resultTypes[0], finish<T>(y))};
  });
}

Tensors convGradInput(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  ConvSizes sizes = convSizes(attrs, resultTypes[0].shape, inputs[1].shape(), inputs[0].shape());
  const Windows &windows = sizes.windows;
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    using Type = typename Total<T>::Type;
    Operand<T> dy(inputs[0]), w(inputs[1]);
    std::vector<T> transposed(sizes.outChannels * sizes.patch());
    std::vector<Type> patches(sizes.patch() * windows.positions);
    std::vector<Type> dx(numElements(resultTypes[0].shape), 0);
    for (int64_t g = 0; g < sizes.groups; ++g) {
      transposeInto(sizes.outChannels, sizes.patch(), w.begin() + sizes.weightAt(g), transposed);
      for (int64_t n = 0; n < sizes.samples; ++n) {
        std::fill(patches.begin(), patches.end(), Type(0));
        multiplyAdd<T>(sizes.patch(), windows.positions, sizes.outChannels, transposed.data(),
                       dy.begin() + sizes.outputAt(n, g), patches.data());
        // The inverse of gatherPatches: every patch element is added to the element that it was
        // read from.
        Type *target = dx.data() + sizes.inputAt(n, g);
        const Type *cursor = patches.data();
        for (int64_t channel = 0; channel < sizes.inChannels; ++channel, target += windows.inputs)
          for (int64_t index : windows.inputIndex) {
            if (index >= 0)
              target[index] += *cursor;
            ++cursor;
          }
      }
    }
    return {makeResult(context, resultTypes[0], finish<T>(dx))};
  });
}

Tensors convGradWeight(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                       const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  ConvSizes sizes = convSizes(attrs, inputs[0].shape(), resultTypes[0].shape, inputs[1].shape());
  int64_t positions = sizes.windows.positions;
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), dy(inputs[1]);
    std::vector<T> patches(sizes.patch() * positions), transposed(patches.size());
    std::vector<typename Total<T>::Type> dw(numElements(resultTypes[0].shape), 0);
    for (int64_t n = 0; n < sizes.samples; ++n)
      for (int64_t g = 0; g < sizes.groups; ++g) {
        gatherPatches(sizes, x.begin() + sizes.inputAt(n, g), patches);
        transposeInto(sizes.patch(), positions, patches.data(), transposed);
        multiplyAdd<T>(sizes.outChannels, sizes.patch(), positions,
                       dy.begin() + sizes.outputAt(n, g), transposed.data(),
                       dw.data() + sizes.weightAt(g));
      }
    return {makeResult(context, resultTypes[0], finish<T>(dw))};
  });
}

} // namespace

const KernelTable &tbc::kernels::convolutionKernels() {
  static const KernelTable table = {
      {"conv", conv}, {"conv_grad_input", convGradInput}, {"conv_grad_weight", convGradWeight}};
  return table;
}
