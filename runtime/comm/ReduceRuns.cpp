//===- ReduceRuns.cpp - The arithmetic of collectives on bytes -------------===//
//
// Sums of floats have loops of their own, written so that compilers make vectors of them. They
// begin with +0 as kernels::Sum does, so that zeros have the same sign.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/ReduceRuns.h"
#include "runtime/comm/Reduce.h"

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

constexpr int64_t blockElements = 1024; // partial sums that stay in the first cache

template <typename Stored> const Stored *elements(const unsigned char *bytes) {
  return reinterpret_cast<const Stored *>(bytes);
}

/// Of two floats the sum in f32 is that in f64, rounded once (f64 has more than twice the digits).
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

/// By tensors, a block after the other.
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

} // namespace tbc::comm
