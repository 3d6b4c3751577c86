//===- kernels_bench.cpp - Native kernels beside the reference and memory -===//
//
//   kernels-bench [SECONDS]      time per kernel, 0.2 unless given
//
// One thread. Measures each kernel of a GPT-2-small-shaped step (1,024 tokens, width 768; attention
// over 4 x 256 tokens). Prints:
// - microseconds of the native kernel, the least of all repetitions;
// - the reference kernel's time as a multiple of it;
// - bytes of operands and results per second, as a share of the run's memcpy of that size;
// - GFLOP/s of matmuls.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/NativeKernel.h"
#include "runtime/kernels/Kernel.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace tbc;
using kernels::Arith;
using kernels::Attrs;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;

namespace {

using Types = std::vector<TensorType>;
using Ints = std::vector<int64_t>;

struct Case {
  std::string op;
  Attrs attrs;
  Types operands, results;
  double flops = 0; // of matmuls
};

struct Free {
  void operator()(unsigned char *memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char, Free>;

int64_t bytesOf(const TensorType &type) {
  return kernels::numElements(type.shape) * kernels::byteWidth(type.dtype);
}

Memory memoryOf(int64_t bytes) {
  auto size = size_t(bytes + 255) / 256 * 256;
  Memory memory(static_cast<unsigned char *>(std::aligned_alloc(256, std::max<size_t>(size, 256))));
  std::memset(memory.get(), 0, size);
  return memory;
}

/// Returns the least seconds of one call of `work`.
double leastSeconds(double total, const std::function<void()> &work) {
  using Clock = std::chrono::steady_clock;
  auto secondsOf = [&] {
    auto begin = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double least = secondsOf(); // the first call warms up
  for (double spent = least, last = 0; spent < total; spent += last) {
    last = secondsOf();
    least = std::min(least, last);
  }
  return least;
}

double copySeconds(int64_t bytes, double total) {
  Memory from = memoryOf(bytes / 2), to = memoryOf(bytes / 2);
  return leastSeconds(total, [&] {
    std::memcpy(to.get(), from.get(), size_t(bytes / 2));
    asm volatile("" : : "r"(to.get()) : "memory");
  });
}

/// Returns numbers in [0.5, 1), so that no kernel meets a denormal or a branch that training does
/// not take.
Tensor operandOf(const TensorType &type) {
  std::vector<double> values(size_t(kernels::numElements(type.shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.5 + double(i * 2654435761U % 4096) / 8192;
  return Tensor::fromDoubles(type, Arith::Native, values);
}

void measure(const Case &one, double total) {
  cpu::NativeKernel native = cpu::findNativeKernel(one.op, one.attrs, one.operands, one.results);
  if (!native) {
    std::printf("%-22s has no native kernel\n", one.op.c_str());
    return;
  }
  std::vector<Tensor> operands;
  std::vector<Memory> memory;
  cpu::Buffers buffers;
  int64_t bytes = 0;
  for (const TensorType &type : one.operands) {
    operands.push_back(operandOf(type));
    std::vector<unsigned char> content = operands.back().toBytes();
    memory.push_back(memoryOf(bytesOf(type)));
    std::copy(content.begin(), content.end(), memory.back().get());
    buffers.operands.push_back(memory.back().get());
    bytes += bytesOf(type);
  }
  for (const TensorType &type : one.results) {
    memory.push_back(memoryOf(bytesOf(type)));
    buffers.results.push_back(memory.back().get());
    bytes += bytesOf(type);
  }
  cpu::Threads threads(1);
  double fast = leastSeconds(total, [&] { native(threads, buffers); });
  kernels::KernelFn reference = kernels::findKernel(one.op);
  double slow =
      leastSeconds(0, [&] { reference({Arith::Native}, one.attrs, operands, one.results); });
  std::printf("%-22s %10.1f us   reference %7.1f x   %5.0f %% of a copy", one.op.c_str(),
              1e6 * fast, slow / fast, 100 * copySeconds(bytes, total) / fast);
  if (one.flops > 0)
    std::printf("   %6.1f GFLOP/s", 1e-9 * one.flops / fast);
  std::printf("\n");
}

std::vector<Case> allCases() {
  constexpr int64_t tokens = 1024, width = 768, wide = 3072, batch = 4, heads = 12, seq = 256;
  TensorType narrow{DType::F32, {tokens, width}}, broad{DType::F32, {tokens, wide}};
  TensorType row{DType::F32, {width}}, statistic{DType::F32, {tokens}}, scalar{DType::F32, {}};
  TensorType weight{DType::F32, {width, wide}};
  TensorType head{DType::F32, {batch, heads, seq, width / heads}};
  TensorType headRows{DType::F32, {batch, heads, seq}};
  Attrs product = {
      {"lhs_labels", Ints{0, 1}}, {"rhs_labels", Ints{1, 2}}, {"out_labels", Ints{0, 2}}};
  Attrs attention = {
      {"scale", 0.125},           {"causal", true},    {"left", int64_t(-1)},
      {"right", int64_t(-1)},     {"key_mask", false}, {"segments", false},
      {"ordered", false},         {"placed", false},   {"hidden_rows", std::string("zero")},
      {"drops_out", false},       {"dropout", 0.0},    {"dropout_seed", int64_t(0)},
      {"dropout_key", int64_t(0)}};
  return {
      {"add", {}, {broad, broad}, {broad}},
      {"gelu", {{"approximate", std::string("tanh")}}, {broad}, {broad}},
      {"gelu_grad", {{"approximate", std::string("tanh")}}, {broad, broad}, {broad}},
      {"layer_norm", {{"epsilon", 1e-5}}, {narrow, row, row}, {narrow, statistic, statistic}},
      {"softmax", {{"dim", int64_t(1)}}, {broad}, {broad}},
      {"transpose", {{"permutation", Ints{1, 0}}}, {broad}, {{DType::F32, {wide, tokens}}}},
      {"reduce_sum", {{"dims", Ints{0}}}, {broad}, {{DType::F32, {wide}}}},
      {"einsum", product, {narrow, weight}, {broad}, 2.0 * tokens * width * wide},
      {"attention",
       attention,
       {head, head, head},
       {head, headRows, headRows},
       4.0 * batch * seq * seq * width},
  };
}

} // namespace

int main(int argc, char **argv) {
  double total = argc > 1 ? std::atof(argv[1]) : 0.2;
  for (const Case &one : allCases())
    measure(one, total);
  return 0;
}
