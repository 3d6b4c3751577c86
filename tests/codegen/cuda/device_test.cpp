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

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <tuple>

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
  cuda::LaunchableKernel find(const std::string &symbol, const region::Kernel &whole) {
    cuda::LaunchableKernel kernel = find(symbol, whole.extent, whole.threads);
    kernel.workspaceBytes = whole.workspaceBytes;
    for (auto [i, launch] : llvm::enumerate(whole.then))
      kernel.then.push_back(
          find(region::symbolOfLaunch(symbol, i + 1), launch.extent, launch.threads));
    return kernel;
  }
  cuda::LaunchableKernel find(const std::string &symbol, int64_t blocks, int threads = 0) {
    cuda::LaunchableKernel kernel;
    kernel.symbol = symbol;
    kernel.blocks = unsigned(blocks);
    kernel.threads = unsigned(threads > 0 ? threads : cuda::threadsPerBlock);
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
    if (kernel.workspaceBytes > 0) {
      memory.push_back(allocate(kernel.workspaceBytes));
      addresses.push_back(memory.back().address());
    }
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

  void check(std::vector<Compiled> compiled);
  void checkOps(const std::vector<OpCase> &cases);

  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  cuda::ModuleHandle module = nullptr;
};

region::EmitFn emitter() {
  return [](func::FuncOp function, const region::Domain &domain) {
    return cuda::emitCudaKernel(function, domain);
  };
}

/// Checks that the compiled kernels agree with the reference, also in place.
void DeviceTest::check(std::vector<Compiled> compiled) {
  std::vector<std::string> texts;
  for (Compiled &one : compiled)
    texts.push_back(sourceOf(one).text);
  load(texts);
  if (!module)
    return;
  for (Compiled &one : compiled) {
    cuda::LaunchableKernel kernel = find(one.symbol, one.kernel);
    tbc::check(
        one,
        [&](const KernelRun &how, const auto &operands, const auto &types) {
          return run(kernel, how, operands, types);
        },
        /*lanes=*/1, /*inPieces=*/false);
  }
}

TEST_F(DeviceTest, KernelsAgreeWithTheReference) {
  std::vector<OpCase> cases = allCases();
  for (const std::vector<OpCase> &list : {otherCases(), shapeCases()})
    cases.insert(cases.end(), list.begin(), list.end());
  std::vector<Compiled> compiled;
  for (const OpCase &opCase : cases)
    if (auto one = compileCase(opCase, emitter(), int(compiled.size())))
      compiled.push_back(std::move(*one));
  check(std::move(compiled));
}

/// Reductions over many rows, few columns: by several blocks, the last of which combines their
/// parts.
std::vector<OpCase> casesInParts() {
  std::vector<OpCase> cases;
  std::string rows = "dims = array<i64: 0>", all = "dims = array<i64: 0, 1>";
  for (std::string type : {"xf32", "xbf16"}) {
    // Rows: a prime, exact parts, a part of one row. Columns: one, odd, whole vectors.
    for (const char *size :
         {"127x1", "64x1", "1031x37", "2048x8", "1057x24", "129x260", "4099x3"}) {
      std::string x = size, columns = x.substr(x.find('x') + 1);
      cases.push_back({"reduce_sum", x + type, columns + type, rows});
      cases.push_back({"reduce_max", x + type, columns + type, rows});
      cases.push_back({"reduce_sum", x + type, type.substr(1), all});
      std::string row = x.substr(0, x.find('x'));
      cases.push_back({"norm_scale_grad",
                       x + type + ", " + x + type + ", " + row + "xf32, " + row + "xf32",
                       columns + type});
    }
    std::string channels = "dims = array<i64: 0, 2, 3>";
    for (const char *size : {"67x3x5x7", "1024x2x4x4", "1024x5x1x3", "9x2x64x65", "1300x8x2x2"}) {
      std::string x = size;
      size_t begin = x.find('x') + 1;
      std::string c = x.substr(begin, x.find('x', begin) - begin);
      cases.push_back({"reduce_sum", x + type, c + type, channels});
      cases.push_back({"reduce_max", x + type, c + type, channels});
    }
    cases.push_back({"reduce_max", "70001" + type, type.substr(1), rows});
    cases.push_back({"softmax", "521x5" + type, "521x5" + type, "dim = 0 : i64"});
    cases.push_back({"softmax", "2x9001" + type, "2x9001" + type, "dim = 1 : i64"});
  }
  return cases;
}

/// A sum over rows with what is done before and after it, and with a result that has the rows. The
/// sum may overwrite the operand of its shape.
const char *const biasGradient = R"(
func.func @f(%x: tensor<331x24xbf16>, %bias: tensor<24xf32>)
    -> (tensor<331x24xbf16>, tensor<24xf32>) {
  %y = tbc.silu %x : (tensor<331x24xbf16>) -> tensor<331x24xbf16>
  %wide = tbc.cast %y : (tensor<331x24xbf16>) -> tensor<331x24xf32>
  %sum = tbc.reduce_sum %wide {dims = array<i64: 0>} : (tensor<331x24xf32>) -> tensor<24xf32>
  %next = tbc.sub %bias, %sum : tensor<24xf32>
  return %y, %next : tensor<331x24xbf16>, tensor<24xf32>
})";

/// The same beside a sum over the rows of an unrelated value.
const char *const twoGradients = R"(
func.func @f(%x: tensor<331x24xbf16>, %bias: tensor<24xf32>, %z: tensor<331x24xf32>)
    -> (tensor<331x24xbf16>, tensor<24xf32>, tensor<24xbf16>) {
  %y = tbc.silu %x : (tensor<331x24xbf16>) -> tensor<331x24xbf16>
  %wide = tbc.cast %y : (tensor<331x24xbf16>) -> tensor<331x24xf32>
  %sum = tbc.reduce_sum %wide {dims = array<i64: 0>} : (tensor<331x24xf32>) -> tensor<24xf32>
  %next = tbc.sub %bias, %sum : tensor<24xf32>
  %other = tbc.reduce_sum %z {dims = array<i64: 0>} : (tensor<331x24xf32>) -> tensor<24xf32>
  %narrow = tbc.cast %other : (tensor<24xf32>) -> tensor<24xbf16>
  return %y, %next, %narrow : tensor<331x24xbf16>, tensor<24xf32>, tensor<24xbf16>
})";

/// A batch norm: the second pass needs the mean, the third also the variance.
const char *const batchNorm = R"(
func.func @f(%x: tensor<1500x3x4x2xf32>, %scale: tensor<3xf32>)
    -> (tensor<1500x3x4x2xf32>, tensor<3xf32>, tensor<3xf32>) {
  %sum = tbc.reduce_sum %x {dims = array<i64: 0, 2, 3>} : (tensor<1500x3x4x2xf32>) -> tensor<3xf32>
  %number = tbc.factor_size {count = 1 : i64, samples = 12000 : i64} : () -> tensor<f32>
  %count = tbc.broadcast %number {dims = array<i64>} : (tensor<f32>) -> tensor<3xf32>
  %mean = tbc.div %sum, %count : tensor<3xf32>
  %means = tbc.broadcast %mean {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<1500x3x4x2xf32>
  %off = tbc.sub %x, %means : tensor<1500x3x4x2xf32>
  %squares = tbc.mul %off, %off : tensor<1500x3x4x2xf32>
  %total = tbc.reduce_sum %squares {dims = array<i64: 0, 2, 3>}
      : (tensor<1500x3x4x2xf32>) -> tensor<3xf32>
  %variance = tbc.div %total, %count : tensor<3xf32>
  %factor = tbc.mul %variance, %scale : tensor<3xf32>
  %factors = tbc.broadcast %factor {dims = array<i64: 1>}
      : (tensor<3xf32>) -> tensor<1500x3x4x2xf32>
  %y = tbc.mul %off, %factors : tensor<1500x3x4x2xf32>
  return %y, %mean, %variance : tensor<1500x3x4x2xf32>, tensor<3xf32>, tensor<3xf32>
})";

TEST_F(DeviceTest, ReductionsInPartsAgreeWithTheReference) {
  std::vector<Compiled> compiled;
  int numInParts = 0;
  for (const OpCase &opCase : casesInParts()) {
    auto one = compileCase(opCase, emitter(), int(compiled.size()));
    ASSERT_TRUE(one) << testing::PrintToString(opCase);
    numInParts += one->kernel.workspaceBytes > 0 ? 1 : 0;
    compiled.push_back(std::move(*one));
  }
  EXPECT_GE(numInParts, int(compiled.size()) / 2); // others are too small
  // A launch per pass over the rows.
  for (auto [text, launches] :
       {std::pair(biasGradient, 1), std::pair(twoGradients, 1), std::pair(batchNorm, 3)}) {
    auto one = compileFunction("region", text, emitter(), int(compiled.size()));
    ASSERT_TRUE(one);
    EXPECT_EQ(int(one->kernel.then.size()) + 1, launches);
    EXPECT_TRUE(one->kernel.mayOverwrite[0][0]);
    compiled.push_back(std::move(*one));
  }
  check(std::move(compiled));
}

/// The gradients of a norm: of `rows` of x[rows.., columns], of its scale, and of what is added
/// before and behind it. `rows`: "8x" or "2x3x".
std::string normGradients(const std::string &rows, const std::string &columns,
                          const std::string &type) {
  std::string text = R"(
func.func @f(%a: tensor<ROWSxTYPE>, %b: tensor<ROWSxTYPE>, %x: tensor<ROWSxTYPE>,
             %w: tensor<COLUMNSxTYPE>, %mean: tensor<STATxf32>, %rstd: tensor<STATxf32>)
    -> (tensor<ROWSxTYPE>, tensor<COLUMNSxf32>, tensor<COLUMNSxTYPE>, tensor<COLUMNSxTYPE>) {
  %dy = tbc.add %a, %b : tensor<ROWSxTYPE>
  %dx = tbc.layer_norm_grad %dy, %x, %w, %mean, %rstd
      : (tensor<ROWSxTYPE>, tensor<ROWSxTYPE>, tensor<COLUMNSxTYPE>, tensor<STATxf32>, tensor<STATxf32>) -> tensor<ROWSxTYPE>
  %dh = tbc.add %dx, %b : tensor<ROWSxTYPE>
  %dw = tbc.norm_scale_grad %dy, %x, %mean, %rstd
      : (tensor<ROWSxTYPE>, tensor<ROWSxTYPE>, tensor<STATxf32>, tensor<STATxf32>) -> tensor<COLUMNSxTYPE>
  %wide = tbc.cast %dw : (tensor<COLUMNSxTYPE>) -> tensor<COLUMNSxf32>
  %db = tbc.reduce_sum %dy {dims = array<i64: DIMS>} : (tensor<ROWSxTYPE>) -> tensor<COLUMNSxTYPE>
  %before = tbc.reduce_sum %dh {dims = array<i64: DIMS>} : (tensor<ROWSxTYPE>) -> tensor<COLUMNSxTYPE>
  return %dh, %wide, %db, %before
      : tensor<ROWSxTYPE>, tensor<COLUMNSxf32>, tensor<COLUMNSxTYPE>, tensor<COLUMNSxTYPE>
})";
  auto replace = [&](const std::string &name, const std::string &by) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at))
      text.replace(at, name.size(), by);
  };
  replace("ROWS", rows + columns), replace("COLUMNS", columns), replace("TYPE", type);
  replace("STAT", rows.substr(0, rows.size() - 1));
  replace("DIMS", std::count(rows.begin(), rows.end(), 'x') == 2 ? "0, 1" : "0");
  return text;
}

/// Column sums in the kernel of the rows: whole vectors and single elements, a warp and several for
/// a row, threads without an element, one block, one group of blocks and several.
TEST_F(DeviceTest, ColumnSumsAgreeWithTheReference) {
  std::vector<Compiled> compiled;
  for (auto [rows, columns, type, threads] :
       {std::tuple("3x", "64", "f32", 32), std::tuple("7x5x", "96", "bf16", 32),
        std::tuple("70x", "37", "f32", 32), std::tuple("261x", "160", "bf16", 32),
        std::tuple("33x", "768", "bf16", 96), std::tuple("20x", "1032", "bf16", 96),
        std::tuple("35x", "768", "f32", 64), std::tuple("2x2x", "1600", "f32", 96),
        std::tuple("3x", "8192", "bf16", 512)}) {
    auto one = compileFunction("region", normGradients(rows, columns, type), emitter(),
                               int(compiled.size()));
    ASSERT_TRUE(one) << rows << columns << type;
    EXPECT_TRUE(one->kernel.then.empty());
    EXPECT_EQ(one->kernel.threads, threads) << rows << columns << type;
    EXPECT_TRUE(one->kernel.mayOverwrite[0][0]);
    compiled.push_back(std::move(*one));
  }
  check(std::move(compiled));
  // Its sums do not fit into the registers of a block.
  EXPECT_FALSE(compileFunction("region", normGradients("8x", "16384", "f32"), emitter(), 0));
}

TEST_F(DeviceTest, ColumnsAreReadAndWrittenInPlace) {
  std::vector<Compiled> compiled;
  for (const std::string &text : columnFunctions()) {
    auto one = compileFunction(text, text, emitter(), int(compiled.size()));
    ASSERT_TRUE(one) << text;
    compiled.push_back(std::move(*one));
  }
  check(std::move(compiled));
}

/// Whether a row is true anywhere. All elements have one byte, and sums have four: a block has
/// memory for 8 beside each other of each thread.
TEST_F(DeviceTest, ReductionsOfBytesAgreeWithTheReference) {
  const char *const anyOfRows = R"(
func.func @f(%x: tensor<2x512x64xi1>) -> (tensor<2x64xi1>) {
  %wide = tbc.cast %x : (tensor<2x512x64xi1>) -> tensor<2x512x64xf32>
  %most = tbc.reduce_max %wide {dims = array<i64: 1>} : (tensor<2x512x64xf32>) -> tensor<2x64xf32>
  %any = tbc.cast %most : (tensor<2x64xf32>) -> tensor<2x64xi1>
  return %any : tensor<2x64xi1>
})";
  auto one = compileFunction("region", anyOfRows, emitter(), 0);
  ASSERT_TRUE(one);
  EXPECT_GT(one->kernel.workspaceBytes, 0); // in parts
  std::vector<Compiled> compiled;
  compiled.push_back(std::move(*one));
  check(std::move(compiled));
}

/// Checks the cases that have a kernel. Includes warp shuffles, which the CPU tests leave out.
void DeviceTest::checkOps(const std::vector<OpCase> &cases) {
  std::vector<OpKernelCase> calls;
  std::vector<std::string> texts, symbols;
  for (const OpCase &opCase : cases) {
    OpKernelCase call(opCase);
    auto source = call.source(cuda::Form::Device, int(texts.size()));
    if (!source)
      continue;
    texts.push_back(source->text);
    symbols.push_back(source->symbol);
    calls.push_back(std::move(call));
  }
  load(texts);
  for (size_t i = 0; module && i < calls.size(); ++i) {
    cuda::LaunchableKernel kernel = find(symbols[i], calls[i].kernel);
    tbc::check(
        calls[i],
        [&](const KernelRun &how, const auto &operands, const auto &types) {
          return run(kernel, how, operands, types);
        },
        /*inPieces=*/false);
  }
}

/// Over their range, beside f64. Bounds of codegen/cuda/DeviceMath.h.
TEST_F(DeviceTest, FunctionsAreWithinTheirBounds) {
  struct Function {
    const char *op;
    double (*exact)(double);
    double bound; // in units of 2^-24 of the result
  };
  const std::vector<Function> functions = {{"exp", std::exp, 8},  {"tanh", std::tanh, 16},
                                           {"erf", std::erf, 16}, {"atan", std::atan, 4},
                                           {"sin", std::sin, 2},  {"cos", std::cos, 2}};
  constexpr int64_t count = 16384;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> points = {0, infinity, -infinity, std::nan(""), 1e-30, -1e-30, 3e38, -3e38};
  // Angles of all magnitudes, and one next to a multiple of pi / 2 (16367173 2^72).
  for (int exponent = 0; exponent < 128; ++exponent)
    for (double factor : {1.0, -1.37, 1.9999999})
      points.push_back(std::ldexp(factor, exponent));
  points.push_back(std::ldexp(16367173.0, 72));
  while (int64_t(points.size()) < count) {
    auto i = double(points.size());
    points.push_back((i / count - 0.5) * (int64_t(i) % 2 == 0 ? 12 : 176)); // 176: of exp
  }
  std::string type = std::to_string(count) + "xf32";
  std::vector<Compiled> compiled;
  std::vector<std::string> texts;
  for (const Function &function : functions) {
    auto one = compileCase({function.op, type, type}, emitter(), int(compiled.size()));
    ASSERT_TRUE(one) << function.op;
    texts.push_back(sourceOf(*one).text);
    compiled.push_back(std::move(*one));
  }
  load(texts);
  const kernels::TensorType tensor{kernels::DType::F32, {count}};
  for (size_t f = 0; module && f < functions.size(); ++f) {
    const Function &function = functions[f];
    Tensor x = Tensor::fromDoubles(tensor, kernels::Arith::Native, points);
    std::vector<double> in = x.toDoubles(), made = run(find(compiled[f].symbol, compiled[f].kernel),
                                                       {}, {x}, {tensor})[0]
                                                       .toDoubles();
    for (size_t i = 0; i < in.size(); ++i) {
      double exact = double(float(function.exact(in[i])));
      if (std::isnan(exact) || std::isinf(exact) || exact == 0) {
        EXPECT_TRUE(made[i] == exact || (std::isnan(exact) && std::isnan(made[i])))
            << function.op << "(" << in[i] << ") = " << made[i];
        continue;
      }
      double unit = std::max(std::abs(exact) * 0x1p-24, 0x1p-149); // of subnormal results
      EXPECT_LE(std::abs(made[i] - function.exact(in[i])), function.bound * unit)
          << function.op << "(" << in[i] << ") = " << made[i];
    }
  }
}

TEST_F(DeviceTest, NanIsNotLost) {
  std::vector<Compiled> compiled;
  for (const OpCase &opCase : nanCases()) {
    auto one = compileCase(opCase, emitter(), int(compiled.size()));
    ASSERT_TRUE(one) << testing::PrintToString(opCase);
    compiled.push_back(std::move(*one));
  }
  check(std::move(compiled));
  device->driver().moduleUnload(module);
  checkOps(nanOpCases());
}

TEST_F(DeviceTest, TinyOpKernelsAgreeWithTheReference) {
  for (const OpCase &opCase : tinyOpCases())
    EXPECT_TRUE(OpKernelCase(opCase).source(cuda::Form::Device, 0))
        << testing::PrintToString(opCase);
  checkOps(tinyOpCases());
}

TEST_F(DeviceTest, OpKernelsAgreeWithTheReference) { checkOps(opKernelCases()); }

TEST_F(DeviceTest, TiledAttentionAgreesWithTheReference) { checkOps(tiledAttentionCases()); }

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
    cuda::LaunchableKernel kernel = find(one.symbol, one.kernel);
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
