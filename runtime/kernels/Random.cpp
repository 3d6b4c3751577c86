//===- Random.cpp - Dropout and numbers by a counter-based generator -------===//
//
// Part of tbc. The formulas stand in the header.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Random.h"

#include <cmath>
#include <numeric>

using namespace tbc::kernels;

std::array<uint32_t, 4> tbc::kernels::philox(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr int rounds = 10;
  constexpr uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  for (int round = 0; round < rounds; ++round) {
    uint64_t product0 = multiplier0 * counter[0], product1 = multiplier1 * counter[2];
    counter = {uint32_t(product1 >> 32) ^ counter[1] ^ key[0], uint32_t(product1),
               uint32_t(product0 >> 32) ^ counter[3] ^ key[1], uint32_t(product0)};
    key = {key[0] + weyl0, key[1] + weyl1};
  }
  return counter;
}

uint32_t RandomWords::at(int64_t element) {
  auto number = uint64_t(element);
  if (number / words.size() != block) {
    block = number / words.size();
    words = philox({uint32_t(block), uint32_t(block >> 32), step, op}, key);
  }
  return words[number % words.size()];
}

DropoutMask::DropoutMask(double ratio, int64_t seed, int64_t op, int64_t step)
    : threshold(uint32_t(std::floor(std::ldexp(ratioOf(ratio, step), 32)))), words(seed, op, step) {
  require(ratio >= 0 && ratio < 1, "dropout takes a ratio of 0 or more and less than 1");
}

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

Tensors dropout(const KernelContext &, const Attrs &, const Tensors &inputs,
                const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  return inputs;
}

/// The index of every element in the global batch, in row-major order. The indices of dims begin at
/// operand `first`.
std::vector<int64_t> elementNumbers(const Shape &shape, const Tensors &inputs, size_t first) {
  std::vector<int64_t> numbers = {0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const Tensor &index = inputs[first + dim];
    requireShape("the indices of a dim", index.shape(), {shape[dim]});
    std::vector<int64_t> finer;
    finer.reserve(numbers.size() * index.data<int64_t>().size());
    for (int64_t number : numbers)
      for (int64_t step : index.data<int64_t>())
        finer.push_back(number + step);
    numbers = std::move(finer);
  }
  return numbers;
}

Tensors dropoutTrain(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                     const Types &resultTypes) {
  requireCounts(inputs, 2 + inputs[0].shape().size(), resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  int64_t step = inputs[1].data<int64_t>()[0];
  double ratio = attrs.getDouble("ratio");
  DropoutMask mask(ratio, attrs.getInt("seed"), attrs.getInt("key"), step);
  std::vector<int64_t> numbers = elementNumbers(inputs[0].shape(), inputs, 2);
  return dispatchFloat(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    Operand<T> x(inputs[0]);
    T scale = integer<T>(1) / real<T>(1 - DropoutMask::ratioOf(ratio, step));
    std::vector<T> y(x.size(), zero);
    for (int64_t i = 0; i < x.size(); ++i)
      if (mask.keeps(numbers[i]))
        y[i] = x[i] * scale;
    return {makeResult(context, resultTypes[0], std::move(y))};
  });
}

Tensors uniformNumbers(const KernelContext &context, RandomWords words,
                       const std::vector<int64_t> &numbers, const TensorType &type) {
  return dispatch(context.arith, type.dtype, [&](auto zero) -> Tensors {
    using T = decltype(zero);
    constexpr int unusedBits = 8;
    const T unit = integer<T>(1) / integer<T>(int64_t(1) << (32 - unusedBits));
    std::vector<T> y(numbers.size(), zero);
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = integer<T>(int64_t(words.at(numbers[i]) >> unusedBits)) * unit;
    return {makeResult(context, type, std::move(y))};
  });
}

Tensors randomUniform(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                      const Types &resultTypes) {
  requireCounts(inputs, 1, resultTypes, 1);
  requireShape("the result", resultTypes[0].shape, inputs[0].shape());
  std::vector<int64_t> numbers(size_t(inputs[0].numElements()));
  std::iota(numbers.begin(), numbers.end(), int64_t(0));
  return uniformNumbers(context, RandomWords(0, attrs.getInt("key"), 0), numbers, resultTypes[0]);
}

Tensors randomUniformTrain(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
                           const Types &resultTypes) {
  requireCounts(inputs, 1 + resultTypes[0].shape.size(), resultTypes, 1);
  RandomWords words(attrs.getInt("seed"), attrs.getInt("key"), inputs[0].data<int64_t>()[0]);
  return uniformNumbers(context, words, elementNumbers(resultTypes[0].shape, inputs, 1),
                        resultTypes[0]);
}

} // namespace

const KernelTable &tbc::kernels::randomKernels() {
  static const KernelTable table = {{"dropout", dropout},
                                    {"dropout_train", dropoutTrain},
                                    {"random_uniform", randomUniform},
                                    {"random_uniform_train", randomUniformTrain}};
  return table;
}
