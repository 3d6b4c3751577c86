//===- Normalization.cpp - Softmax, layer norm, RMS norm -------------------===//
//
// Part of tbc. The formulas stand in the header.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Normalization.h"

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// Returns 0 for residues, for floats the largest of `count` elements with stride `stride`.
template <typename T> T stabilizer(const T *x, int64_t count, int64_t stride) {
  T largest = integer<T>(0);
  if constexpr (!isResidue<T>) {
    largest = x[0];
    for (int64_t i = 1; i < count; ++i)
      largest = larger(largest, x[i * stride]);
  }
  return largest;
}

Tensors softmax(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  DimSplit split = splitAt(inputs[0].shape(), attrs.getInt("dim"));
  require(split.size > 0, "softmax over no elements is undefined");
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]);
    std::vector<T> y(x.size());
    for (int64_t outer = 0; outer < split.outer; ++outer)
      for (int64_t inner = 0; inner < split.inner; ++inner) {
        int64_t base = outer * split.size * split.inner + inner;
        T largest = stabilizer(x.begin() + base, split.size, split.inner);
        Sum<T> sum;
        for (int64_t i = 0; i < split.size; ++i) {
          int64_t at = base + i * split.inner;
          y[at] = expOf(x[at] - largest);
          sum.add(y[at]);
        }
        Divisor<T> total(sum.result());
        for (int64_t i = 0; i < split.size; ++i)
          y[base + i * split.inner] = total.divide(y[base + i * split.inner]);
      }
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors softmaxGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                    const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  requireShape("dy", inputs[1].shape(), inputs[0].shape());
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  DimSplit split = splitAt(inputs[0].shape(), attrs.getInt("dim"));
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> y(inputs[0]), dy(inputs[1]);
    std::vector<T> dx(y.size());
    for (int64_t outer = 0; outer < split.outer; ++outer)
      for (int64_t inner = 0; inner < split.inner; ++inner) {
        int64_t base = outer * split.size * split.inner + inner;
        Sum<T> sum;
        for (int64_t i = 0; i < split.size; ++i)
          sum.add(y[base + i * split.inner] * dy[base + i * split.inner]);
        T total = sum.result();
        for (int64_t i = 0; i < split.size; ++i) {
          int64_t at = base + i * split.inner;
          dx[at] = y[at] * (dy[at] - total);
        }
      }
    return {makeResult(context, resultTypes[0], std::move(dx))};
  });
}

//===----------------------------------------------------------------------===//
// Norms over the last dim
//===----------------------------------------------------------------------===//

/// A tensor as rows of the normalised dim.
struct Rows {
  int64_t count, size;
  Shape statistics; // the shape without the last dim
};

Rows rowsOf(const Shape &shape) {
  require(!shape.empty() && shape.back() > 0, "a norm needs a last dim with elements");
  Shape statistics(shape.begin(), shape.end() - 1);
  return {numElements(statistics), shape.back(), statistics};
}

/// sum over i < count of term(i).
template <typename T, typename Fn> T sumOver(int64_t count, Fn &&term) {
  Sum<T> sum;
  for (int64_t i = 0; i < count; ++i)
    sum.add(term(i));
  return sum.result();
}

Tensors layerNorm(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, 3, resultTypes, 3);
  Rows rows = rowsOf(inputs[0].shape());
  requireShape("the scale", inputs[1].shape(), {rows.size});
  requireShape("the bias", inputs[2].shape(), {rows.size});
  requireShape("the mean", resultTypes[1].shape, rows.statistics);
  requireShape("the rstd", resultTypes[2].shape, rows.statistics);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), w(inputs[1]), b(inputs[2]);
    T epsilon = compositeConstant<T>(inputs[0].dtype(), attrs.getDouble("epsilon"));
    Divisor<T> n(integer<T>(rows.size));
    std::vector<T> y(x.size()), means(rows.count), rstds(rows.count);
    for (int64_t row = 0; row < rows.count; ++row) {
      const T *line = x.begin() + row * rows.size;
      T mean = n.divide(sumOver<T>(rows.size, [&](int64_t i) { return line[i]; }));
      T var = n.divide(
          sumOver<T>(rows.size, [&](int64_t i) { return (line[i] - mean) * (line[i] - mean); }));
      T rstd = rsqrtOf(var + epsilon);
      for (int64_t i = 0; i < rows.size; ++i)
        y[row * rows.size + i] = (line[i] - mean) * rstd * w[i] + b[i];
      means[row] = mean;
      rstds[row] = rstd;
    }
    return {makeResult(context, resultTypes[0], std::move(y)),
            makeResult(context, resultTypes[1], std::move(means)),
            makeResult(context, resultTypes[2], std::move(rstds))};
  });
}

Tensors layerNormGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 5, resultTypes, 1);
  Rows rows = rowsOf(inputs[1].shape());
  requireShape("dy", inputs[0].shape(), inputs[1].shape());
  requireShape("the scale", inputs[2].shape(), {rows.size});
  requireShape("the mean", inputs[3].shape(), rows.statistics);
  requireShape("the rstd", inputs[4].shape(), rows.statistics);
  return dispatchFloat(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), x(inputs[1]), w(inputs[2]), mean(inputs[3]), rstd(inputs[4]);
    Divisor<T> n(integer<T>(rows.size));
    std::vector<T> dx(x.size());
    for (int64_t row = 0; row < rows.count; ++row) {
      int64_t base = row * rows.size;
      auto g = [&](int64_t i) { return dy[base + i] * w[i]; };
      auto h = [&](int64_t i) { return (x[base + i] - mean[row]) * rstd[row]; };
      T meanG = n.divide(sumOver<T>(rows.size, g));
      T meanGH = n.divide(sumOver<T>(rows.size, [&](int64_t i) { return g(i) * h(i); }));
      for (int64_t i = 0; i < rows.size; ++i)
        dx[base + i] = rstd[row] * (g(i) - meanG - h(i) * meanGH);
    }
    return {makeResult(context, resultTypes[0], std::move(dx))};
  });
}

Tensors rmsNorm(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 2);
  Rows rows = rowsOf(inputs[0].shape());
  requireShape("the scale", inputs[1].shape(), {rows.size});
  requireShape("the rstd", resultTypes[1].shape, rows.statistics);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), w(inputs[1]);
    T epsilon = compositeConstant<T>(inputs[0].dtype(), attrs.getDouble("epsilon"));
    Divisor<T> n(integer<T>(rows.size));
    std::vector<T> y(x.size()), rstds(rows.count);
    for (int64_t row = 0; row < rows.count; ++row) {
      const T *line = x.begin() + row * rows.size;
      T meanSquare = n.divide(sumOver<T>(rows.size, [&](int64_t i) { return line[i] * line[i]; }));
      rstds[row] = rsqrtOf(meanSquare + epsilon);
      for (int64_t i = 0; i < rows.size; ++i)
        y[row * rows.size + i] = line[i] * rstds[row] * w[i];
    }
    return {makeResult(context, resultTypes[0], std::move(y)),
            makeResult(context, resultTypes[1], std::move(rstds))};
  });
}

Tensors rmsNormGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                    const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 1);
  Rows rows = rowsOf(inputs[1].shape());
  requireShape("dy", inputs[0].shape(), inputs[1].shape());
  requireShape("the scale", inputs[2].shape(), {rows.size});
  requireShape("the rstd", inputs[3].shape(), rows.statistics);
  return dispatchFloat(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), x(inputs[1]), w(inputs[2]), rstd(inputs[3]);
    Divisor<T> n(integer<T>(rows.size));
    std::vector<T> dx(x.size());
    for (int64_t row = 0; row < rows.count; ++row) {
      int64_t base = row * rows.size;
      auto g = [&](int64_t i) { return dy[base + i] * w[i]; };
      auto h = [&](int64_t i) { return x[base + i] * rstd[row]; };
      T meanGH = n.divide(sumOver<T>(rows.size, [&](int64_t i) { return g(i) * h(i); }));
      for (int64_t i = 0; i < rows.size; ++i)
        dx[base + i] = rstd[row] * (g(i) - h(i) * meanGH);
    }
    return {makeResult(context, resultTypes[0], std::move(dx))};
  });
}

/// The sum over rows of term(row, column), per column.
template <typename T, typename Fn> std::vector<T> sumRows(const Rows &rows, Fn &&term) {
  std::vector<Sum<T>> sums(rows.size);
  for (int64_t row = 0; row < rows.count; ++row)
    for (int64_t i = 0; i < rows.size; ++i)
      sums[i].add(term(row, i));
  return resultsOf(sums);
}

Tensors normScaleGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 1);
  Rows rows = rowsOf(inputs[1].shape());
  requireShape("dy", inputs[0].shape(), inputs[1].shape());
  requireShape("the mean", inputs[2].shape(), rows.statistics);
  requireShape("the rstd", inputs[3].shape(), rows.statistics);
  return dispatchFloat(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), x(inputs[1]), mean(inputs[2]), rstd(inputs[3]);
    std::vector<T> dw = sumRows<T>(rows, [&](int64_t row, int64_t i) {
      int64_t at = row * rows.size + i;
      return dy[at] * ((x[at] - mean[row]) * rstd[row]);
    });
    return {makeResult(context, resultTypes[0], std::move(dw))};
  });
}

Tensors rmsScaleGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                     const Types &resultTypes) {
  requireCounts(inputs, 3, resultTypes, 1);
  Rows rows = rowsOf(inputs[1].shape());
  requireShape("dy", inputs[0].shape(), inputs[1].shape());
  requireShape("the rstd", inputs[2].shape(), rows.statistics);
  return dispatchFloat(inputs[1], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> dy(inputs[0]), x(inputs[1]), rstd(inputs[2]);
    std::vector<T> dw = sumRows<T>(rows, [&](int64_t row, int64_t i) {
      int64_t at = row * rows.size + i;
      return dy[at] * (x[at] * rstd[row]);
    });
    return {makeResult(context, resultTypes[0], std::move(dw))};
  });
}

} // namespace

const KernelTable &tbc::kernels::normalizationKernels() {
  static const KernelTable table = {
      {"softmax", softmax},
      {"softmax_grad", softmaxGrad},
      {"layer_norm", layerNorm},
      {"layer_norm_grad", layerNormGrad},
      {"norm_scale_grad", normScaleGrad},
      {"rms_norm", rmsNorm},
      {"rms_norm_grad", rmsNormGrad},
      {"rms_scale_grad", rmsScaleGrad},
  };
  return table;
}
