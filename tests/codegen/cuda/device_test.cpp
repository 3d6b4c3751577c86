//===- device_test.cpp - Kernels on a real GPU -----------------------------===//
//
// Runs if TBC_GPU_TESTS=1 is set (tests/bench/gpu.sh sets it). A missing GPU is then a failure.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/cuda/LowerPtx.h"
#include "runtime/cuda/DeviceArena.h"
#include "runtime/cuda/KernelModule.h"
#include "tests/codegen/cuda/OpKernelCheck.h"

#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace mlir;
using namespace tbc;
using kernels::Tensor;

namespace {

class DeviceTest : public testing::Test {
protected:
  void SetUp() override {
    const char *asked = std::getenv("TBC_GPU_TESTS");
    if (!asked || std::string(asked) != "1")
      GTEST_SKIP() << "TBC_GPU_TESTS=1 asks for tests on a GPU";
    auto driver = cuda::loadDriver();
    ASSERT_TRUE(driver) << driver.error().message;
    auto opened = cuda::Device::open(*driver, 0);
    ASSERT_TRUE(opened) << opened.error().message;
    device = *opened;
    auto made = cuda::Streams::create(device, std::chrono::milliseconds(0));
    ASSERT_TRUE(made) << made.error().message;
    streams = *made;
  }
  void TearDown() override {
    if (module)
      device->driver().moduleUnload(module);
  }

  void load(const std::vector<std::string> &texts) {
    auto ptx = cuda::lowerToPtx(texts, device->capability() >= 90 ? 90 : 80);
    ASSERT_TRUE(ptx) << ptx.error().message;
    Status status = device->check(
        device->driver().moduleLoadData(&module, ptx->c_str(), 0, nullptr, nullptr), "loading");
    ASSERT_TRUE(status) << status.error().message;
  }
  cuda::LaunchableKernel find(const std::string &symbol, int64_t blocks) {
    cuda::LaunchableKernel kernel;
    kernel.symbol = symbol;
    kernel.blocks = unsigned(blocks);
    kernel.threads = unsigned(cuda::threadsPerBlock);
    Status status =
        device->check(device->driver().moduleGetFunction(&kernel.function, module, symbol.c_str()),
                      "kernel " + symbol);
    EXPECT_TRUE(status) << status.error().message;
    return kernel;
  }
  cuda::DeviceMemory allocate(int64_t bytes) {
    auto memory = cuda::DeviceMemory::allocate(device, bytes, "a buffer");
    EXPECT_TRUE(memory) << memory.error().message;
    return memory ? std::move(*memory) : cuda::DeviceMemory();
  }

  std::vector<Tensor> run(const cuda::LaunchableKernel &kernel, const KernelRun &how,
                          const std::vector<Tensor> &operands,
                          const std::vector<kernels::TensorType> &results) {
    std::vector<cuda::DeviceMemory> memory;
    std::vector<cuda::DeviceAddress> addresses;
    for (const Tensor &operand : operands) {
      std::vector<unsigned char> bytes = operand.toBytes();
      memory.push_back(allocate(int64_t(bytes.size())));
      addresses.push_back(memory.back().address());
      EXPECT_TRUE(streams->upload(addresses.back(), bytes.data(), int64_t(bytes.size())));
    }
    for (const kernels::TensorType &type : results) {
      memory.push_back(allocate(program::sizeBytes(type)));
      addresses.push_back(memory.back().address());
    }
    for (auto [result, operand] : how.inPlace)
      addresses[operands.size() + size_t(result)] = addresses[size_t(operand)];
    std::vector<void *> arguments;
    for (cuda::DeviceAddress &address : addresses)
      arguments.push_back(&address);
    Status status = kernel.launch(*device, streams->of(program::Stream::Compute), arguments.data());
    EXPECT_TRUE(status) << status.error().message;
    std::vector<Tensor> made;
    for (size_t r = 0; r < results.size(); ++r) {
      std::vector<unsigned char> bytes(size_t(program::sizeBytes(results[r])));
      status =
          streams->download(bytes.data(), addresses[operands.size() + r], int64_t(bytes.size()));
      EXPECT_TRUE(status) << status.error().message;
      made.push_back(Tensor::fromBytes(results[r], kernels::Arith::Native, bytes.data()));
    }
    return made;
  }

  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  cuda::ModuleHandle module = nullptr;
};

region::EmitFn emitter() {
  return [](func::FuncOp function, const region::Domain &domain) {
    return cuda::emitCudaKernel(function, domain);
  };
}

TEST_F(DeviceTest, KernelsAgreeWithTheReference) {
  std::vector<OpCase> cases = allCases();
  for (const std::vector<OpCase> &list : {otherCases(), shapeCases()})
    cases.insert(cases.end(), list.begin(), list.end());
  std::vector<Compiled> compiled;
  std::vector<std::string> texts;
  for (const OpCase &opCase : cases)
    if (auto one = compileCase(opCase, emitter(), int(compiled.size()))) {
      texts.push_back(sourceOf(*one).text);
      compiled.push_back(std::move(*one));
    }
  load(texts);
  if (!module)
    return;
  for (Compiled &one : compiled) {
    cuda::LaunchableKernel kernel = find(one.symbol, one.kernel.extent);
    check(
        one,
        [&](const KernelRun &how, const auto &operands, const auto &types) {
          return run(kernel, how, operands, types);
        },
        /*lanes=*/1, /*inPieces=*/false);
  }
}

/// Includes warp shuffles, which the CPU tests leave out.
TEST_F(DeviceTest, OpKernelsAgreeWithTheReference) {
  std::vector<OpKernelCase> calls;
  std::vector<std::string> texts, symbols;
  std::vector<int64_t> extents;
  for (const OpCase &opCase : opKernelCases()) {
    OpKernelCase call(opCase);
    int64_t extent = 0;
    auto source = call.source(cuda::Form::Device, int(texts.size()), extent);
    if (!source)
      continue;
    texts.push_back(source->text);
    symbols.push_back(source->symbol);
    extents.push_back(extent);
    calls.push_back(std::move(call));
  }
  load(texts);
  for (size_t i = 0; module && i < calls.size(); ++i) {
    cuda::LaunchableKernel kernel = find(symbols[i], extents[i]);
    check(
        calls[i],
        [&](const KernelRun &how, const auto &operands, const auto &types) {
          return run(kernel, how, operands, types);
        },
        extents[i], /*inPieces=*/false);
  }
}

/// Printed, not judged: the bandwidth of a kernel, against that of a copy.
TEST_F(DeviceTest, BytesPerSecond) {
  constexpr int64_t count = int64_t(1) << 26;
  std::string type = std::to_string(count) + "xf32";
  std::vector<OpCase> cases = {{"mul", type + ", " + type, type},
                               {"gelu", type, type, "approximate = \"tanh\""},
                               {"softmax", "65536x1024xf32", "65536x1024xf32", "dim = 1 : i64"}};
  std::vector<Compiled> compiled;
  std::vector<std::string> texts;
  for (const OpCase &opCase : cases) {
    auto one = compileCase(opCase, emitter(), int(compiled.size()));
    ASSERT_TRUE(one);
    texts.push_back(sourceOf(*one).text);
    compiled.push_back(std::move(*one));
  }
  load(texts);
  ASSERT_TRUE(module);
  constexpr int64_t bytes = 4 * count;
  cuda::DeviceMemory a = allocate(bytes), b = allocate(bytes), c = allocate(bytes);
  auto rate = [&](int64_t moved, const std::function<Status()> &once) {
    constexpr int warmUps = 3, repeats = 20;
    for (int i = 0; i < warmUps; ++i)
      EXPECT_TRUE(once());
    EXPECT_TRUE(streams->wait());
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i)
      EXPECT_TRUE(once());
    EXPECT_TRUE(streams->wait());
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return double(moved) * repeats / seconds.count();
  };
  double copy = rate(2 * bytes, [&] {
    return streams->of(program::Stream::Compute).copyWithin(b.address(), a.address(), bytes);
  });
  printf("copy: %.0f GB/s\n", copy / 1e9);
  for (Compiled &one : compiled) {
    cuda::LaunchableKernel kernel = find(one.symbol, one.kernel.extent);
    bool isBinary = one.opCase.mnemonic == "mul";
    cuda::DeviceAddress addresses[] = {a.address(), b.address(), c.address()};
    void *arguments[] = {&addresses[0], &addresses[1], &addresses[2]};
    double kernelRate = rate((isBinary ? 3 : 2) * bytes, [&] {
      return kernel.launch(*device, streams->of(program::Stream::Compute), arguments);
    });
    printf("%s: %.0f GB/s, %.2f of a copy\n", one.opCase.mnemonic.c_str(), kernelRate / 1e9,
           kernelRate / copy);
  }
}

} // namespace
