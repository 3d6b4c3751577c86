//===- NativeCase.cpp - Compares a native kernel with its reference ----------===//

#include "tests/runtime/cpu/NativeCase.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

namespace tbc::test {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;

cpu::Types NativeCase::operandTypes() const {
  cpu::Types types;
  for (const Tensor &operand : operands)
    types.push_back(operand.type());
  return types;
}

namespace {

/// Memory aligned like an arena's, with a guard behind it.
class Bytes {
public:
  explicit Bytes(size_t size)
      : size(size), memory(static_cast<unsigned char *>(
                        std::aligned_alloc(256, (size + guard + 255) / 256 * 256))) {
    std::memset(memory, 0xA5, (size + guard + 255) / 256 * 256);
  }
  Bytes(Bytes &&o) noexcept : size(o.size), memory(std::exchange(o.memory, nullptr)) {}
  ~Bytes() { std::free(memory); }

  unsigned char *data() const { return memory; }
  bool isGuardWhole() const {
    for (size_t i = size; i < size + guard; ++i)
      if (memory[i] != 0xA5)
        return false;
    return true;
  }

private:
  static constexpr size_t guard = 64;
  size_t size;
  unsigned char *memory;
};

size_t sizeOf(const TensorType &type) {
  return size_t(kernels::numElements(type.shape) * kernels::byteWidth(type.dtype));
}

std::vector<Tensor> runWith(const NativeCase &testCase, const cpu::NativeKernel &kernel,
                            cpu::Threads &threads) {
  std::vector<Bytes> memory;
  cpu::Buffers buffers;
  for (const Tensor &operand : testCase.operands) {
    std::vector<unsigned char> bytes = operand.toBytes();
    memory.emplace_back(bytes.size());
    std::copy(bytes.begin(), bytes.end(), memory.back().data());
    buffers.operands.push_back(memory.back().data());
  }
  for (const TensorType &type : testCase.results) {
    memory.emplace_back(sizeOf(type));
    buffers.results.push_back(memory.back().data());
  }
  kernel(threads, buffers);
  for (const Bytes &piece : memory)
    EXPECT_TRUE(piece.isGuardWhole()) << testCase.op << " writes beyond its result";
  std::vector<Tensor> results;
  for (size_t r = 0; r < testCase.results.size(); ++r)
    results.push_back(Tensor::fromBytes(testCase.results[r], Arith::Native, buffers.results[r]));
  return results;
}

} // namespace

std::vector<Tensor> runNative(const NativeCase &testCase) {
  cpu::NativeKernel kernel =
      cpu::findNativeKernel(testCase.op, testCase.attrs, testCase.operandTypes(), testCase.results);
  if (!kernel) {
    ADD_FAILURE() << testCase.op << " has no native kernel";
    return {};
  }
  cpu::Threads one(1), three(3);
  std::vector<Tensor> results = runWith(testCase, kernel, one);
  std::vector<Tensor> others = runWith(testCase, kernel, three);
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(bitwiseEqual(results[r], others[r]))
        << testCase.op << " depends on the number of threads";
  return results;
}

std::vector<Tensor> runExact(const NativeCase &testCase) {
  std::vector<Tensor> operands;
  for (const Tensor &operand : testCase.operands)
    operands.push_back(kernels::isFloat(operand.dtype())
                           ? Tensor::fromDoubles(operand.type(), Arith::F64, operand.toDoubles())
                           : operand);
  return kernels::findKernel(testCase.op)({Arith::F64}, testCase.attrs, operands, testCase.results);
}

NativeCase withMagnitudes(NativeCase testCase) {
  for (Tensor &operand : testCase.operands) {
    if (!kernels::isFloat(operand.dtype()))
      continue;
    std::vector<double> values = operand.toDoubles();
    for (double &value : values)
      value = std::fabs(value);
    if (!values.empty())
      operand = Tensor::fromDoubles(operand.type(), Arith::Native, values);
  }
  return testCase;
}

double unitRoundoff(DType dtype) { return dtype == DType::BF16 ? 0x1p-8 : 0x1p-24; }

void expectClose(const Tensor &actual, const Tensor &exact, const Tensor &magnitude, double slack,
                 const std::string &what) {
  std::vector<double> got = actual.toDoubles(), want = exact.toDoubles();
  std::vector<double> scale = magnitude.toDoubles();
  ASSERT_EQ(got.size(), want.size()) << what;
  double unit = unitRoundoff(actual.dtype());
  for (size_t i = 0; i < got.size(); ++i) {
    double bound = slack * scale[scale.size() == 1 ? 0 : i];
    bound += unit * (std::fabs(want[i]) + bound) * 1.01 + 1e-38;
    ASSERT_LE(std::fabs(got[i] - want[i]), bound)
        << what << ": element " << i << " is " << got[i] << ", exactly " << want[i];
  }
}

Tensor randomFloats(const TensorType &type, unsigned seed, double low, double high) {
  std::mt19937 generator(seed);
  std::vector<double> values(size_t(kernels::numElements(type.shape)));
  for (double &value : values)
    value = low + (high - low) * (generator() / 4294967296.0);
  return values.empty() ? Tensor::zeros(type, Arith::Native)
                        : Tensor::fromDoubles(type, Arith::Native, values);
}

Tensor randomInts(const TensorType &type, unsigned seed, int64_t low, int64_t high) {
  std::mt19937 generator(seed);
  std::vector<int64_t> values(size_t(kernels::numElements(type.shape)));
  for (int64_t &value : values)
    value = low + int64_t(generator() % uint64_t(high - low));
  return values.empty() ? Tensor::zeros(type, Arith::Native) : Tensor::fromInts(type, values);
}

} // namespace tbc::test
