//===- Vocabulary.cpp - Kernels over numbered rows and classes -------------===//
//
// Part of tbc. The formulas stand in the header.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Vocabulary.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

int64_t scalarOf(const Tensor &tensor) {
  requireShape("the last number", tensor.shape(), {});
  return tensor.data<int64_t>()[0];
}

/// The part of a vocabulary on this rank.
class Vocabulary {
public:
  Vocabulary(const Tensor &numbers, int64_t last, int64_t size)
      : numbers(numbers.data<int64_t>()), last(last) {
    requireShape("the numbers", numbers.shape(), {size});
    while (count < size && this->numbers[count] >= 0)
      ++count;
    for (int64_t i = 0; i < size; ++i)
      require(i < count ? (i == 0 || this->numbers[i - 1] < this->numbers[i])
                        : this->numbers[i] < 0,
              "the numbers of a vocabulary have to ascend, with padding at the end");
  }

  /// The number of entries without padding.
  int64_t valid() const { return count; }

  /// The position of number `number`; -1 if it is elsewhere.
  int64_t find(int64_t number) const {
    auto end = numbers.begin() + count;
    auto it = std::lower_bound(numbers.begin(), end, number);
    return it == end || *it != number ? -1 : it - numbers.begin();
  }

  /// The positions of the rows `indices`; -1 if elsewhere.
  std::vector<int64_t> findRows(const KernelContext &context, const Tensor &indices) const {
    std::vector<int64_t> places = indices.data<int64_t>();
    for (int64_t &index : places) {
      index = indexIn(context, index, last + 1);
      require(index >= -last - 1 && index <= last, [&] {
        return "index " + std::to_string(index) + " is out of range for a table of " +
               std::to_string(last + 1) + " rows";
      });
      index = find(index < 0 ? index + last + 1 : index);
    }
    return places;
  }

  /// The positions of the classes `labels`; -1 if elsewhere or `ignored`.
  std::vector<int64_t> findClasses(const KernelContext &context, const Tensor &labels,
                                   int64_t ignored) const {
    std::vector<int64_t> places = labels.data<int64_t>();
    for (int64_t &label : places) {
      label = label == ignored ? label : indexIn(context, label, last + 1);
      require(label == ignored || (label >= 0 && label <= last), [&] {
        return "label " + std::to_string(label) + " is neither one of the " +
               std::to_string(last + 1) + " classes nor the ignored index " +
               std::to_string(ignored);
      });
      label = label == ignored ? -1 : find(label);
    }
    return places;
  }

private:
  const std::vector<int64_t> &numbers;
  int64_t last;
  int64_t count = 0;
};

/// `indices`, then the dims of a row of `table`.
Shape embeddedShape(const Shape &table, const Shape &indices) {
  require(!table.empty(), "a table needs rows");
  Shape shape = indices;
  shape.insert(shape.end(), table.begin() + 1, table.end());
  return shape;
}

Tensors embedding(const KernelContext &context, const Attrs &, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 1);
  const Shape &table = inputs[0].shape();
  requireShape("the result", resultTypes[0].shape, embeddedShape(table, inputs[1].shape()));
  std::vector<int64_t> places =
      Vocabulary(inputs[2], scalarOf(inputs[3]), table[0]).findRows(context, inputs[1]);
  int64_t width = numElements(table) / std::max<int64_t>(table[0], 1);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *x = inputs[0].data<T>().data();
    std::vector<T> y(numElements(resultTypes[0].shape), zero);
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i] >= 0)
        std::copy_n(x + places[i] * width, width, y.begin() + i * width);
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors embeddingGrad(const KernelContext &context, const Attrs &, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 4, resultTypes, 1);
  const Shape &table = resultTypes[0].shape;
  requireShape("the updates", inputs[0].shape(), embeddedShape(table, inputs[1].shape()));
  std::vector<int64_t> places =
      Vocabulary(inputs[2], scalarOf(inputs[3]), table[0]).findRows(context, inputs[1]);
  int64_t width = numElements(table) / std::max<int64_t>(table[0], 1);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    const T *update = inputs[0].data<T>().data();
    std::vector<Sum<T>> sums(numElements(table));
    for (int64_t place : places) {
      for (int64_t i = 0; i < width && place >= 0; ++i)
        sums[place * width + i].add(update[i]);
      update += width;
    }
    std::vector<T> y(sums.size());
    std::transform(sums.begin(), sums.end(), y.begin(),
                   [](const Sum<T> &sum) { return sum.result(); });
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors classMax(const KernelContext &context, const Attrs &, const Tensors &inputs,
                 const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  const Shape &logits = inputs[0].shape();
  require(!logits.empty(), "a maximum needs classes in the last dim");
  requireShape("the result", resultTypes[0].shape, Shape(logits.begin(), logits.end() - 1));
  int64_t size = logits.back();
  int64_t valid = Vocabulary(inputs[1], std::numeric_limits<int64_t>::max(), size).valid();
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]);
    std::vector<T> m(numElements(resultTypes[0].shape), zero);
    if constexpr (!isResidue<T>)
      for (size_t row = 0; row < m.size(); ++row) {
        const T *line = x.begin() + row * size;
        m[row] = valid == 0 ? std::numeric_limits<float>::lowest()
                            : std::accumulate(line, line + valid, *line, larger<T>);
      }
    return {makeResult(context, resultTypes[0], std::move(m))};
  });
}

/// Common to class_sums and its gradient.
struct ClassRows {
  int64_t size, valid;
  std::vector<int64_t> places; // of the labels
  double labelWeight, classWeight;

  ClassRows(const KernelContext &context, const Attrs &attrs, const Tensors &inputs) {
    const Shape &logits = inputs[0].shape();
    require(!logits.empty(), "class sums need classes in the last dim");
    Shape rows(logits.begin(), logits.end() - 1);
    requireShape("the maximum", inputs[1].shape(), rows);
    requireShape("the labels", inputs[2].shape(), rows);
    size = logits.back();
    Vocabulary vocabulary(inputs[3], scalarOf(inputs[4]), size);
    valid = vocabulary.valid();
    places = vocabulary.findClasses(context, inputs[2], attrs.getInt("ignore_index"));
    labelWeight = attrs.getDouble("label_weight");
    classWeight = attrs.getDouble("class_weight");
  }
};

Tensors classSums(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                  const Types &resultTypes) {
  requireCounts(inputs, 5, resultTypes, 2);
  ClassRows rows(context, attrs, inputs);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), m(inputs[1]);
    T onLabel = compositeConstant<T>(inputs[0].dtype(), rows.labelWeight);
    T onAll = compositeConstant<T>(inputs[0].dtype(), rows.classWeight);
    std::vector<T> denominator, target;
    for (size_t row = 0; row < rows.places.size(); ++row) {
      const T *line = x.begin() + row * rows.size;
      Sum<T> sum, all;
      for (int64_t j = 0; j < rows.valid; ++j) {
        sum.add(expOf(line[j] - m[row]));
        all.add(line[j]);
      }
      denominator.push_back(sum.result());
      T chosen = rows.places[row] < 0 ? zero : onLabel * line[rows.places[row]];
      target.push_back(rows.classWeight == 0 ? chosen : chosen + onAll * all.result());
    }
    return {makeResult(context, resultTypes[0], std::move(denominator)),
            makeResult(context, resultTypes[1], std::move(target))};
  });
}

Tensors classSumsGrad(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 7, resultTypes, 1);
  ClassRows rows(context, attrs, inputs);
  for (size_t i : {5, 6})
    requireShape("a cotangent", inputs[i].shape(), inputs[2].shape());
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]), m(inputs[1]), ddenominator(inputs[5]), dtarget(inputs[6]);
    T onLabel = compositeConstant<T>(inputs[0].dtype(), rows.labelWeight);
    T onAll = compositeConstant<T>(inputs[0].dtype(), rows.classWeight);
    std::vector<T> dx(x.size(), zero);
    for (size_t row = 0; row < rows.places.size(); ++row)
      for (int64_t j = 0; j < rows.valid; ++j) {
        T weight = j == rows.places[row] ? onAll + onLabel : onAll;
        int64_t i = row * rows.size + j;
        dx[i] = ddenominator[row] * expOf(x[i] - m[row]) + dtarget[row] * weight;
      }
    return {makeResult(context, resultTypes[0], std::move(dx))};
  });
}

} // namespace

const KernelTable &tbc::kernels::vocabularyKernels() {
  static const KernelTable table = {{"embedding", embedding},
                                    {"embedding_grad", embeddingGrad},
                                    {"class_max", classMax},
                                    {"class_sums", classSums},
                                    {"class_sums_grad", classSumsGrad}};
  return table;
}
