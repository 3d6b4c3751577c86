//===- ReduceRuns.cpp - The arithmetic of collectives on bytes -------------===//
//
// Sums of floats have their own loops, written for vectorization. They begin with +0 as
// `kernels::Sum` does, so that zeros have the same sign.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/ReduceRuns.h"
#include "runtime/comm/Fold.h"
#include "runtime/comm/Reduce.h"
#include "runtime/kernels/Support.h"

#include <algorithm>
#include <cstring>

namespace tbc::comm {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;

namespace {

using Inputs = std::vector<const unsigned char *>;

struct F32 {
  using Stored = float;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};

struct BF16 {
  using Stored = uint16_t;
  static float load(uint16_t stored) {
    uint32_t bits = uint32_t(stored) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  /// kernels::encodeBF16 without a branch.
  static uint16_t store(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;
    return uint16_t((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
};

struct F16 {
  using Stored = uint16_t;
  static float load(uint16_t stored) { return kernels::decodeF16(stored); }
  static uint16_t store(float value) { return kernels::encodeF16(value); }
};

constexpr int64_t blockElements = 1024; // partial sums that fit in the L1 cache

template <typename Stored> const Stored *elements(const unsigned char *bytes) {
  return reinterpret_cast<const Stored *>(bytes);
}

/// Adds two floats in f32. This equals the f64 sum rounded once, because f64 has more than twice
/// the digits.
template <typename Type>
void addTwo(const unsigned char *first, const unsigned char *second, unsigned char *output,
            int64_t count) {
  using Stored = typename Type::Stored;
  const Stored *a = elements<Stored>(first), *b = elements<Stored>(second);
  auto *to = reinterpret_cast<Stored *>(output);
  for (int64_t i = 0; i < count; ++i)
    to[i] = Type::store(0.0F + Type::load(a[i]) + Type::load(b[i]));
}

template <typename Type> void addAll(const Inputs &inputs, unsigned char *output, int64_t count) {
  using Stored = typename Type::Stored;
  if (inputs.size() == 2)
    return addTwo<Type>(inputs[0], inputs[1], output, count);
  double sums[blockElements];
  auto *to = reinterpret_cast<Stored *>(output);
  for (int64_t begin = 0; begin < count; begin += blockElements) {
    int64_t size = std::min(blockElements, count - begin);
    std::fill_n(sums, size, 0.0);
    for (const unsigned char *input : inputs) {
      const Stored *from = elements<Stored>(input) + begin;
      for (int64_t i = 0; i < size; ++i)
        sums[i] += double(Type::load(from[i]));
    }
    for (int64_t i = 0; i < size; ++i)
      to[begin + i] = Type::store(float(sums[i]));
  }
}

/// Reduces by way of tensors, block by block.
void reduceAny(const Reduction &reduction, const ElementType &type, const Inputs &inputs,
               unsigned char *output, int64_t count) {
  constexpr int64_t tensorElements = 1 << 14;
  for (int64_t begin = 0; begin < count; begin += tensorElements) {
    int64_t size = std::min(tensorElements, count - begin);
    std::vector<Tensor> tensors;
    for (const unsigned char *input : inputs)
      tensors.push_back(decode({type.dtype, {size}}, type.arith, input + begin * type.width()));
    fromTensor(reduce(reduction, tensors), {{output + begin * type.width(), size * type.width()}});
  }
}

} // namespace

void reduceElements(const Reduction &reduction, const ElementType &type, const Inputs &inputs,
                    unsigned char *output, int64_t count) {
  bool isPlain = reduction.kind == ReduceKind::Sum && type.arith == Arith::Native;
  if (isPlain && type.dtype == DType::F32)
    return addAll<F32>(inputs, output, count);
  if (isPlain && type.dtype == DType::BF16)
    return addAll<BF16>(inputs, output, count);
  if (isPlain && type.dtype == DType::F16)
    return addAll<F16>(inputs, output, count);
  reduceAny(reduction, type, inputs, output, count);
}

void narrowToBF16(const unsigned char *from, unsigned char *into, int64_t count) {
  const auto *values = elements<float>(from);
  auto *to = reinterpret_cast<uint16_t *>(into);
  for (int64_t i = 0; i < count; ++i)
    to[i] = BF16::store(values[i]);
}

void widenFromBF16(const unsigned char *from, unsigned char *into, int64_t count) {
  const auto *stored = elements<uint16_t>(from);
  auto *to = reinterpret_cast<float *>(into);
  for (int64_t i = 0; i < count; ++i)
    to[i] = BF16::load(stored[i]);
}

//===----------------------------------------------------------------------===//
// In parts
//===----------------------------------------------------------------------===//

namespace {

/// Sums floats in loops that compilers vectorize.
template <typename Type>
void addTo(double *sums, const unsigned char *before, const Inputs &inputs, int64_t count) {
  using Stored = typename Type::Stored;
  if (before)
    std::memmove(sums, before, size_t(count) * sizeof(double));
  else
    std::fill_n(sums, count, 0.0);
  for (const unsigned char *input : inputs) {
    const Stored *from = elements<Stored>(input);
    for (int64_t i = 0; i < count; ++i)
      sums[i] += double(Type::load(from[i]));
  }
}

template <typename Type> void round(const double *sums, unsigned char *output, int64_t count) {
  auto *to = reinterpret_cast<typename Type::Stored *>(output);
  for (int64_t i = 0; i < count; ++i)
    to[i] = Type::store(float(sums[i]));
}

template <typename T> Tensor tensorOf(const ElementType &type, std::vector<T> &&values) {
  int64_t count = int64_t(values.size());
  return Tensor({type.dtype, {count}}, std::move(values));
}

} // namespace

int64_t stateWidth(const ElementType &type) {
  return kernels::isFloat(type.dtype) && type.arith == Arith::Residue251
             ? int64_t(sizeof(kernels::Residue251))
             : 8;
}

void foldElements(const Reduction &reduction, const ElementType &type, const unsigned char *before,
                  const Inputs &inputs, unsigned char *states, int64_t count) {
  requireReducible(reduction, type.dtype);
  bool isPlain = reduction.kind == ReduceKind::Sum && type.arith == Arith::Native;
  auto *sums = reinterpret_cast<double *>(states);
  if (isPlain && type.dtype == DType::F32)
    return addTo<F32>(sums, before, inputs, count);
  if (isPlain && type.dtype == DType::BF16)
    return addTo<BF16>(sums, before, inputs, count);
  if (isPlain && type.dtype == DType::F16)
    return addTo<F16>(sums, before, inputs, count);
  kernels::dispatch(type.arith, type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = typename Folded<T>::Type;
    std::vector<State> folded(static_cast<size_t>(count));
    if (before && count > 0)
      std::memcpy(folded.data(), before, folded.size() * sizeof(State));
    bool isFirst = !before;
    for (const unsigned char *input : inputs) {
      Tensor terms = decode({type.dtype, {count}}, type.arith, input);
      const std::vector<T> &data = terms.data<T>();
      for (size_t i = 0; i < data.size(); ++i)
        folded[i] = isFirst ? beginFold(reduction, data[i]) : fold(reduction, folded[i], data[i]);
      isFirst = false;
    }
    if (count > 0)
      std::memcpy(states, folded.data(), folded.size() * sizeof(State));
  });
}

void endFolds(const Reduction &reduction, const ElementType &type, const unsigned char *states,
              int64_t numTerms, unsigned char *output, int64_t count) {
  bool isPlain = reduction.kind == ReduceKind::Sum && type.arith == Arith::Native;
  const auto *sums = reinterpret_cast<const double *>(states);
  if (isPlain && type.dtype == DType::F32)
    return round<F32>(sums, output, count);
  if (isPlain && type.dtype == DType::BF16)
    return round<BF16>(sums, output, count);
  if (isPlain && type.dtype == DType::F16)
    return round<F16>(sums, output, count);
  kernels::dispatch(type.arith, type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = typename Folded<T>::Type;
    std::vector<State> folded(static_cast<size_t>(count));
    if (count > 0)
      std::memcpy(folded.data(), states, folded.size() * sizeof(State));
    std::vector<T> values(folded.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = endFold<T>(reduction, folded[i], numTerms);
    fromTensor(tensorOf(type, std::move(values)), {{output, count * type.width()}});
  });
}

} // namespace tbc::comm
