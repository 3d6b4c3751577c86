//===- CrossEntropy.cpp - Cross entropy with integer labels ----------------===//
//
// Part of tbc. The formulas stand in the header.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/CrossEntropy.h"

#include <numeric>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

/// The labels of all rows, checked against `classes`.
struct Labels {
  std::vector<int64_t> label;
  int64_t ignoreIndex;
  double smoothing;

  Labels(const KernelContext &context, const Attrs &attrs, const Tensor &labels,
         const Shape &logits)
      : label(labels.data<int64_t>()), ignoreIndex(attrs.getInt("ignore_index", -100)),
        smoothing(attrs.getDouble("label_smoothing", 0)) {
    require(!logits.empty() && logits.back() > 0, "cross entropy needs classes in the last dim");
    requireShape("the labels", labels.shape(), Shape(logits.begin(), logits.end() - 1));
    for (int64_t &value : label) {
      value = value == ignoreIndex ? value : indexIn(context, value, logits.back());
      require(value == ignoreIndex || (value >= 0 && value < logits.back()), [&] {
        return "label " + std::to_string(value) + " is neither one of the " +
               std::to_string(logits.back()) + " classes nor the ignored index " +
               std::to_string(ignoreIndex);
      });
    }
  }

  int64_t rows() const { return int64_t(label.size()); }
  bool ignored(int64_t row) const { return label[row] == ignoreIndex; }
};

Tensors crossEntropy(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 3);
  Labels labels(context, attrs, inputs[1], inputs[0].shape());
  int64_t classes = inputs[0].shape().back();
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]);
    T kept = compositeConstant<T>(inputs[0].dtype(), 1 - labels.smoothing);
    T share = compositeConstant<T>(inputs[0].dtype(), labels.smoothing / double(classes));
    std::vector<T> loss(labels.rows(), zero), m(labels.rows(), zero), l(labels.rows());
    for (int64_t row = 0; row < labels.rows(); ++row) {
      const T *line = x.begin() + row * classes;
      if constexpr (!isResidue<T>)
        m[row] = std::accumulate(line, line + classes, *line, larger<T>);
      Sum<T> sum, spread;
      for (int64_t j = 0; j < classes; ++j) {
        sum.add(expOf(line[j] - m[row]));
        spread.add(line[j]);
      }
      l[row] = sum.result();
      if (labels.ignored(row))
        continue;
      T chosen = line[labels.label[row]];
      if (labels.smoothing != 0)
        chosen = kept * chosen + share * spread.result();
      loss[row] = m[row] + logOf(l[row]) - chosen;
    }
    return {makeResult(context, resultTypes[0], std::move(loss)),
            makeResult(context, resultTypes[1], std::move(m)),
            makeResult(context, resultTypes[2], std::move(l))};
  });
}

Tensors crossEntropyGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                         const Types &resultTypes) {
  requireCounts(inputs, 5, resultTypes, 1);
  Labels labels(context, attrs, inputs[1], inputs[0].shape());
  for (size_t i = 2; i < 5; ++i)
    requireShape("a per-row operand", inputs[i].shape(), inputs[1].shape());
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  int64_t classes = inputs[0].shape().back();
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), m(inputs[2]), l(inputs[3]), dloss(inputs[4]);
    double spread = labels.smoothing / double(classes);
    T elsewhere = compositeConstant<T>(inputs[0].dtype(), spread);
    T onLabel = elsewhere + compositeConstant<T>(inputs[0].dtype(), 1 - labels.smoothing);
    std::vector<T> dx(x.size(), zero);
    for (int64_t row = 0; row < labels.rows(); ++row) {
      if (labels.ignored(row))
        continue;
      Divisor<T> denominator(l[row]);
      for (int64_t j = 0; j < classes; ++j) {
        T probability = denominator.divide(expOf(x[row * classes + j] - m[row]));
        T target = j == labels.label[row] ? onLabel : elsewhere;
        dx[row * classes + j] = dloss[row] * (probability - target);
      }
    }
    return {makeResult(context, resultTypes[0], std::move(dx))};
  });
}

} // namespace

const KernelTable &tbc::kernels::crossEntropyKernels() {
  static const KernelTable table = {{"cross_entropy", crossEntropy},
                                    {"cross_entropy_grad", crossEntropyGrad}};
  return table;
}
