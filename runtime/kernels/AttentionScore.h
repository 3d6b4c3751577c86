//===- AttentionScore.h - The score of a query and a key -------------------===//
//
// Part of tbc. Internal to kernels. The formulas stand in Attention.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ATTENTIONSCORE_H
#define TBC_RUNTIME_KERNELS_ATTENTIONSCORE_H

#include "runtime/kernels/Scalar.h"
#include "runtime/kernels/Support.h"

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace tbc::kernels {

/// The shape of a bias, and its strides along b, h, s and t, 0 for a dim that it lacks.
/// Example: [h, s, t] = [2, 3, 5] has the strides 0, 15, 5, 1.
struct BiasLayout {
  std::array<int64_t, 4> strides = {};
  Shape shape;
};

/// The layouts of the biases of an attention; `sizes` are b, h, s and t. `attrs` has "biases", for
/// example "hst,bt"; KernelError if it is malformed.
std::vector<BiasLayout> biasLayouts(const Attrs &attrs, const std::array<int64_t, 4> &sizes);

/// The number of operands of biases and the sink.
size_t numScoreOperands(const Attrs &attrs);

/// What an attention does to scale * (q . k): the cap, the biases and the sink.
template <typename T> class AttentionScore {
public:
  /// `inputs` holds the operands from `first` on; `sizes` are b, h, s and t.
  AttentionScore(const Attrs &attrs, const std::vector<Tensor> &inputs, size_t first, DType dtype,
                 const std::array<int64_t, 4> &sizes)
      : layouts(biasLayouts(attrs, sizes)), keys(sizes[3]) {
    for (const BiasLayout &layout : layouts) {
      requireShape("a bias", inputs[first].shape(), layout.shape);
      biases.push_back(std::make_unique<Operand<T>>(inputs[first++]));
    }
    if (attrs.getBool("sink", false)) {
      requireShape("the sink", inputs[first].shape(), {sizes[1]});
      sinks = std::make_unique<Operand<T>>(inputs[first++]);
    }
    if (double number = attrs.getDouble("soft_cap", 0); number > 0) {
      cap = compositeConstant<T>(dtype, number);
      divisor.emplace(*cap);
    }
  }

  /// Changes a row of scale * (q . k) to scores.
  void apply(T *row, int64_t sample, int64_t head, int64_t query) const {
    if (cap)
      for (int64_t j = 0; j < keys; ++j)
        row[j] = tanhOf(divisor->divide(row[j])) * *cap;
    for (size_t i = 0; i < layouts.size(); ++i)
      for (int64_t j = 0; j < keys; ++j)
        row[j] = row[j] + (*biases[i])[index(i, sample, head, query, j)];
  }

  /// Multiplies a row of gradients of scores by the cap's derivative, 1 - tanh^2. `row` is that of
  /// scale * (q . k).
  void multiplyDerivative(T *gradients, const T *row) const {
    if (!cap)
      return;
    for (int64_t j = 0; j < keys; ++j) {
      T tanh = tanhOf(divisor->divide(row[j]));
      gradients[j] = gradients[j] * (integer<T>(1) - tanh * tanh);
    }
  }

  bool hasSink() const { return sinks != nullptr; }
  T sink(int64_t head) const { return (*sinks)[head]; }

  /// The element of bias `i` for a pair of query and key.
  int64_t index(size_t i, int64_t sample, int64_t head, int64_t query, int64_t key) const {
    const auto &s = layouts[i].strides;
    return sample * s[0] + head * s[1] + query * s[2] + key * s[3];
  }
  size_t numBiases() const { return layouts.size(); }
  const Shape &biasShape(size_t i) const { return layouts[i].shape; }

private:
  std::vector<BiasLayout> layouts;
  int64_t keys;
  std::vector<std::unique_ptr<Operand<T>>> biases;
  std::unique_ptr<Operand<T>> sinks;
  std::optional<T> cap;
  std::optional<Divisor<T>> divisor;
};

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ATTENTIONSCORE_H
