//===- large_tensors_test.cpp - Kernels of more than 2^32 elements -----------===//
//
// Executes the last block of each launch on the executor of PTX (tests/ptx). It must touch the end
// of each large tensor. An offset in 32 bits would be negative, and outside of all memory, or wrap
// to the begin. Memory is virtual, so that only touched pages exist.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/cuda/LowerPtx.h"
#include "ir/Evaluate.h"
#include "tests/codegen/cpu/KernelCheck.h"
#include "tests/codegen/cuda/OpKernelCheck.h"
#include "tests/ptx/Executor.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;

namespace {

constexpr int64_t large = int64_t(1) << 32; // elements

/// A kernel with its tensors in memory.
class LastBlocks {
public:
  LastBlocks(const std::string &name, std::string symbol, const std::string &text,
             const region::Kernel &kernel, const std::vector<kernels::TensorType> &types,
             size_t numOperands, int64_t integer)
      : name(name), symbol(std::move(symbol)), kernel(kernel), numOperands(numOperands) {
    auto ptx = cuda::lowerToPtx({text}, 90);
    if (!ptx) {
      ADD_FAILURE() << name << ": " << ptx.error().message;
      return;
    }
    module = ptx::load(ptx::parse(*ptx), memory, 0xc000000000000000);
    launch.checksInitialization = false;
    for (const kernels::TensorType &type : types) {
      add(program::sizeBytes(type));
      tensors.back().isLarge = kernels::numElements(type.shape) > large;
      if (!kernels::isFloat(type.dtype) && !tensors.back().isLarge)
        fill(type, integer);
    }
    if (kernel.workspaceBytes > 0)
      add(kernel.workspaceBytes);
    isLoaded = true;
  }

  void check() {
    if (!isLoaded)
      return;
    run(symbol, kernel.extent, kernel.threads);
    for (auto [i, one] : llvm::enumerate(kernel.then))
      run(region::symbolOfLaunch(symbol, i + 1), one.extent, one.threads);
    for (auto [i, tensor] : llvm::enumerate(tensors)) {
      if (!tensor.isLarge)
        continue;
      const uint64_t bytes = tensor.end - tensor.begin;
      EXPECT_GT(tensor.last, tensor.end - bytes / 64)
          << name << ": its end is not touched, of "
          << (i < numOperands ? "operand " : "result or workspace ") << i;
      EXPECT_GT(tensor.first, tensor.begin + bytes / 3) << name << ": its begin is touched, " << i;
    }
  }

private:
  struct Tensor {
    uint64_t begin, end;
    bool isLarge = false;
    uint64_t first = UINT64_MAX, last = 0; // touched bytes
  };

  void add(int64_t bytes) {
    constexpr uint64_t alignment = 4096;
    tensors.push_back({next, next + uint64_t(bytes)});
    memory.add(next, size_t(bytes));
    std::vector<unsigned char> argument(sizeof next);
    std::memcpy(argument.data(), &next, sizeof next);
    launch.arguments.push_back(argument);
    next += (uint64_t(bytes) + 2 * alignment) / alignment * alignment;
  }
  void fill(const kernels::TensorType &type, int64_t integer) {
    const size_t width = size_t(kernels::byteWidth(type.dtype));
    std::vector<unsigned char> bytes(size_t(program::sizeBytes(type)));
    for (size_t at = 0; at < bytes.size(); at += width)
      std::memcpy(bytes.data() + at, &integer, width); // the lowest bytes first
    memory.write(tensors.back().begin, bytes.data(), bytes.size());
  }

  void run(const std::string &function, int64_t blocks, int threads) {
    ptx::Executor executor(memory);
    launch.blocks.x = uint32_t(blocks);
    launch.threads.x = uint32_t(threads > 0 ? threads : cuda::threadsPerBlock);
    launch.firstBlock = uint64_t(blocks - 1);
    try {
      executor.run(module, function, launch);
    } catch (const ptx::Fault &fault) {
      ADD_FAILURE() << name << ": " << fault.what();
    }
    for (bool ofWrites : {false, true})
      for (const ptx::Touches::Range &range : executor.touches().ranges(ofWrites))
        for (Tensor &tensor : tensors)
          if (range.begin >= tensor.begin && range.begin < tensor.end) {
            tensor.first = std::min(tensor.first, range.begin);
            tensor.last = std::max(tensor.last, range.end);
          }
  }

  const std::string name, symbol;
  const region::Kernel &kernel;
  const size_t numOperands;
  ptx::Memory memory;
  ptx::LoadedModule module;
  ptx::Launch launch;
  std::vector<Tensor> tensors;
  uint64_t next = 0xd000000000000000;
  bool isLoaded = false;
};

/// Logits of 32,768 tokens have 4.98e9 elements.
const std::string logits = "32768x152064x", row = "152064x", column = "32768x";

TEST(LargeTensors, KernelsOfNests) {
  const std::string x = logits + "bf16", wide = logits + "f32";
  const std::string optimizer = "beta1 = 0.9 : f64, beta2 = 0.95 : f64, epsilon = 1.0e-8 : f64, "
                                "weight_decay = 0.1 : f64";
  std::vector<OpCase> cases = {
      {"gelu", x, x, "approximate = \"tanh\""},
      {"add", x + ", " + x, x},
      {"cast", x, wide},
      {"broadcast", row + "bf16", x, "dims = array<i64: 1>"},
      {"broadcast", column + "bf16", x, "dims = array<i64: 0>"},
      {"softmax", x, x, "dim = 1 : i64"},
      {"reduce_sum", x, column + "bf16", "dims = array<i64: 1>"},
      {"reduce_sum", "4194368x1024xbf16", "1024xbf16", "dims = array<i64: 0>"},
      {"reduce_max", wide, "f32", "dims = array<i64: 0, 1>"},
      {"transpose", "64x32768x4096xbf16", "32768x64x4096xbf16",
       "permutation = array<i64: 1, 0, 2>"},
      {"adamw", "4294967424xf32, 4294967424xbf16, 4294967424xf32, 4294967424xf32, f32, i64",
       "4294967424xf32, 4294967424xf32, 4294967424xf32", optimizer},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    auto one = compileCase(
        cases[i],
        [](func::FuncOp function, const region::Domain &domain) {
          return cuda::emitCudaKernel(function, domain);
        },
        int(i));
    ASSERT_TRUE(one) << testing::PrintToString(cases[i]);
    std::vector<kernels::TensorType> types;
    func::FuncOp function = one->module->function("f");
    for (TypeRange list :
         {TypeRange(function.getArgumentTypes()), TypeRange(function.getResultTypes())})
      for (Type type : list)
        types.push_back(*toKernelType(type));
    const std::string text = sourceOf(*one).text;
    LastBlocks(testing::PrintToString(cases[i]), one->symbol, text, one->kernel, types,
               function.getNumArguments(), 1)
        .check();
  }
}

TEST(LargeTensors, KernelsOfOps) {
  const std::string x = logits + "bf16";
  const std::string weights =
      "ignore_index = -100 : i64, label_weight = 0.75 : f64, class_weight = 0.03125 : f64";
  const std::string pool = "kernel = array<i64: 3>, strides = array<i64: 1>, "
                           "pads = array<i64: 1, 1>, dilations = array<i64: 1>";
  const std::string heads = "1048576x8x8x64xbf16", causal = "scale = 0.1 : f64, causal = true";
  struct Case {
    OpCase opCase;
    int64_t integer = 1; // of all integers
  };
  std::vector<Case> cases = {
      {{"class_max", x + ", 152064xi64", "32768xf32"}},
      {{"class_sums", x + ", 32768xf32, 32768xi64, 152064xi64, i64", "32768xf32, 32768xf32",
        weights}},
      {{"class_sums_grad", x + ", 32768xf32, 32768xi64, 152064xi64, i64, 32768xf32, 32768xf32", x,
        weights}},
      {{"cross_entropy", x + ", 32768xi64", "32768xf32, 32768xf32, 32768xf32",
        "ignore_index = -100 : i64"}},
      {{"slice", x, "32768x152063xbf16", "dim = 1 : i64, size = 152063 : i64, offset = 1 : i64"}},
      {{"pad", x, "32768x152072xbf16", "dim = 1 : i64, low = 0 : i64, high = 8 : i64"}},
      {{"concat", "32768x76032xbf16, 32768x76032xbf16", x, "dim = 1 : i64"}},
      {{"gather", x + ", 512xi64", "512x152064xbf16", "dim = 0 : i64"}, 32767},
      {{"scatter_add", "512x152064xbf16, 512xi64", x, "dim = 0 : i64"}, 32767},
      {{"embedding", "152064x32768xbf16, 512xi64, 152064xi64, i64", "512x32768xbf16"}, 152063},
      {{"embedding_grad", "512x32768xbf16, 512xi64, 152064xi64, i64", "152064x32768xbf16"}, 152063},
      {{"gather_elements", "152064x32768xf32, 4x32768xi64", "4x32768xf32", "dim = 0 : i64"},
       152063},
      {{"topk", "33554432x128xf32", "33554432x2xf32, 33554432x2xi64",
        "dim = 1 : i64, largest = true"}},
      {{"cast", logits + "f32", logits + "i32"}},
      {{"rotary", "32x32x32768x256xbf16, 32768x128xbf16, 32768x128xbf16", "32x32x32768x256xbf16",
        "inverse = false"}},
      {{"max_pool", "65536x256x320xf32", "65536x256x320xf32", pool}},
      {{"max_pool_grad", "65536x256x320xf32, 65536x256x320xf32", "65536x256x320xf32", pool}},
      {{"attention", heads + ", " + heads + ", " + heads,
        heads + ", 1048576x8x8xf32, 1048576x8x8xf32", causal}},
      {{"attention_grad",
        heads + ", " + heads + ", " + heads + ", " + heads + ", " + heads +
            ", 1048576x8x8xf32, 1048576x8x8xf32",
        heads + ", " + heads + ", " + heads, causal}},
      {{"einsum", "32768x2xf32, 152064x2xf32", logits + "f32",
        "lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, "
        "out_labels = array<i64: 0, 2>"}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string name = testing::PrintToString(cases[i].opCase);
    OpKernelCase one(cases[i].opCase);
    auto source = one.source(cuda::Form::Device, int(i));
    ASSERT_TRUE(source) << name;
    std::vector<kernels::TensorType> all = one.call.operands;
    all.insert(all.end(), one.call.results.begin(), one.call.results.end());
    LastBlocks(name, source->symbol, source->text, one.kernel, all, one.call.operands.size(),
               cases[i].integer)
        .check();
  }
}

/// Indices of rows have 32 bits there. A table of more rows has no kernel, which is said by name.
TEST(LargeTensors, KernelsOfNarrowIndicesRefuse) {
  for (const OpCase &opCase :
       {OpCase{"embedding_grad", "64x2xf32, 64xi64, 2147483648xi64, i64", "2147483648x2xf32"},
        OpCase{"routed_experts", "1073741824x8xf32, 1073741824x8xf32, 8x8x8xf32, 8x8x8xf32",
               "1073741824x8xf32", "activation = \"relu\", gated = false, top = 2 : i64"}}) {
    OpKernelCase one(opCase);
    EXPECT_TRUE(one.isRead) << testing::PrintToString(opCase);
    EXPECT_FALSE(one.source(cuda::Form::Device, 0)) << testing::PrintToString(opCase);
  }
}

} // namespace
