//===- fp8_kernels_test.cpp - Kernels that quantize to fp8, without a GPU -----===//
//
// Runs the threads one after the other on the CPU and compares with a table of all numbers of a
// format. For devices the kernels are assembled.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitFp8Kernels.h"
#include "codegen/cuda/LowerPtx.h"
#include "tests/codegen/cpu/KernelCheck.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/codegen/cuda/Assemble.h"
#include "tests/gate/Gate.h"
#include "tests/runtime/cuda/Fp8Numbers.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace tbc;
namespace fp8 = program::fp8;
using fp8::Format;
using kernels::DType;
using Floats = std::vector<float>;
using Codes = std::vector<uint8_t>;

namespace {

std::vector<region::KernelSource> sourcesOf(cuda::Form form) {
  ParsedModule any("func.func @f() { return }"); // a context with tbc's ops
  cuda::prepareContext(any.context);
  std::vector<region::KernelSource> sources;
  for (auto &[symbol, kernel] :
       cuda::emitFp8Kernels(any.context, {DType::F32, DType::BF16, DType::F16}, form)) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    kernel.module->print(stream);
    sources.push_back({symbol, text});
  }
  return sources;
}

/// Returns the code of the nearest number, of two the even one. NaN has its own code.
uint8_t nearest(double x, Format format) {
  if (std::isnan(x))
    return 0x7f;
  int best = 0;
  for (int code = 0; code <= (format == Format::E4M3 ? 0x7e : 0x7b); ++code) {
    double distance = std::fabs(test::numberOf(uint8_t(code), format) - std::fabs(x));
    double least = std::fabs(test::numberOf(uint8_t(best), format) - std::fabs(x));
    if (distance < least || (distance == least && code % 2 == 0))
      best = code;
  }
  return uint8_t(best | (std::signbit(x) ? 0x80 : 0));
}

class Fp8Kernels : public testing::Test {
protected:
  static void SetUpTestSuite() {
    auto target = cpu::findCpuTarget("native");
    ASSERT_TRUE(target);
    library = std::make_unique<KernelLibrary>(sourcesOf(cuda::Form::Host), *target);
    ASSERT_TRUE(library->isOpen());
  }
  static void TearDownTestSuite() { library.reset(); }

  /// Runs the last threads first.
  static void run(const std::string &symbol, std::vector<void *> buffers,
                  int64_t numThreads = cuda::fp8ThreadsOnHost) {
    for (int64_t thread = numThreads; thread-- > 0;)
      library->find(symbol)(buffers.data(), thread, thread + 1);
  }

  static Floats scalesOf(const Floats &values, Format format) {
    std::vector<int64_t> sizes(fp8::numSizes, 0);
    sizes[0] = int64_t(values.size());
    std::vector<int32_t> partials(size_t(cuda::fp8ThreadsOnHost), -7);
    Floats scales(2, -7.0f);
    run(fp8::amaxSymbol(DType::F32),
        {const_cast<float *>(values.data()), sizes.data(), partials.data()});
    run(fp8::scaleSymbol(format), {partials.data(), scales.data()}, 1);
    std::swap(scales[0], scales[1]); // the scale and its inverse
    return scales;
  }

  static Codes quantised(const Floats &values, std::vector<int64_t> sizes, float scale,
                         Format format) {
    Codes codes(values.size(), 0xee);
    Floats scales = {1 / scale, scale};
    run(fp8::quantiseSymbol(format, DType::F32),
        {const_cast<float *>(values.data()), sizes.data(), scales.data(), codes.data()});
    return codes;
  }

  static std::unique_ptr<KernelLibrary> library;
};
std::unique_ptr<KernelLibrary> Fp8Kernels::library;

TEST_F(Fp8Kernels, RoundToTheNearestNumberOfTheFormat) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (Format format : fp8::formats) {
    float most = format == Format::E4M3 ? 448.0f : 57344.0f;
    Floats values = {0.0f, -0.0f, most, -most, NAN, 1e-30f};
    // All numbers, the midpoints between neighbours, and values next to midpoints.
    for (int code = 0; code < 0x7b; ++code) {
      auto low = float(test::numberOf(uint8_t(code), format));
      auto high = float(test::numberOf(uint8_t(code + 1), format));
      float middle = (low + high) / 2;
      for (float x : {low, -middle, std::nextafter(middle, 0.0f), std::nextafter(middle, most)})
        values.push_back(x);
    }
    while (values.size() % 16 != 0)
      values.push_back(
          std::clamp(normal(random) * std::ldexp(1.0f, -int(random() % 20)), -most, most));
    auto count = int64_t(values.size());
    Codes codes = quantised(values, {count, 1, 1, count, 0, count, 1, 0}, 1, format);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(int(codes[i]), int(nearest(values[i], format)))
          << fp8::nameOf(format) << " of " << values[i];
  }
}

/// The result does not depend on the summed dim or on the assignment of threads.
TEST_F(Fp8Kernels, TransposeWhatIsSummedOverToTheEnd) {
  const int64_t batch = 3, rows = 5, depth = 32;
  Floats values(size_t(batch * rows * depth));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float(i % 251) - 125;
  auto expect = [&](int64_t batchStride, int64_t rowStride, int64_t depthStride) {
    for (int64_t isByRow : {0, 1}) {
      Codes codes = quantised(
          values,
          {batch * rows * depth, batch, rows, depth, batchStride, rowStride, depthStride, isByRow},
          0.5f, Format::E4M3);
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t d = 0; d < depth; ++d) {
            float x = values[size_t(b * batchStride + r * rowStride + d * depthStride)];
            EXPECT_EQ(codes[size_t((b * rows + r) * depth + d)], nearest(x * 0.5, Format::E4M3));
          }
    }
  };
  expect(rows * depth, depth, 1);
  expect(rows * depth, 1, rows);
  expect(1, batch * depth, batch);
}

TEST_F(Fp8Kernels, ScaleByThePowerOfTwoThatFills) {
  for (auto [format, most] : {std::pair(Format::E4M3, 448.0), {Format::E5M2, 57344.0}})
    for (float amax : {1.0f, 1.75f, std::nextafter(1.75f, 2.0f), 448.0f, 450.0f, 3e-5f, 3e38f,
                       57344.0f, 1e-38f}) {
      Floats scales = scalesOf({0, amax / 3, -amax, 0}, format);
      int power = 0;
      EXPECT_EQ(std::frexp(scales[0], &power), 0.5f);
      EXPECT_EQ(scales[0] * scales[1], 1.0f);
      EXPECT_LE(double(amax) * scales[0], most) << amax;
      if (power - 1 < 126)
        EXPECT_GT(double(amax) * scales[0] * 2, most) << amax;
    }
}

TEST_F(Fp8Kernels, ZerosAndWhatIsNotFinite) {
  float infinity = std::numeric_limits<float>::infinity();
  for (Format format : fp8::formats) {
    EXPECT_EQ(scalesOf(Floats(100, -0.0f), format), (Floats{1, 1}));
    // Denormal numbers get the largest scale, 2^126.
    EXPECT_EQ(scalesOf({1e-40f}, format)[0], std::ldexp(1.0f, 126));
    for (float x : {infinity, -infinity, NAN}) {
      Floats values(100, 1e30f);
      values[70] = x;
      EXPECT_TRUE(std::isnan(scalesOf(values, format)[1]));
    }
  }
}

TEST_F(Fp8Kernels, ReadNarrowTypes) {
  std::vector<double> numbers;
  for (int i = 0; i < 32; ++i)
    numbers.push_back(double(i - 9) * 0.375);
  for (DType type : {DType::BF16, DType::F16}) {
    auto bytes =
        kernels::Tensor::fromDoubles({type, {32}}, kernels::Arith::Native, numbers).toBytes();
    std::vector<int64_t> sizes = {32, 1, 2, 16, 0, 16, 1, 0};
    std::vector<int32_t> partials(size_t(cuda::fp8ThreadsOnHost), -7);
    Floats scales = {0.25f, 4};
    Codes codes(32, 0xee);
    run(fp8::amaxSymbol(type), {bytes.data(), sizes.data(), partials.data()});
    float most = 22 * 0.375f;
    int32_t bits;
    std::memcpy(&bits, &most, sizeof bits);
    EXPECT_EQ(*std::max_element(partials.begin(), partials.end()), bits);
    run(fp8::quantiseSymbol(Format::E5M2, type),
        {bytes.data(), sizes.data(), scales.data(), codes.data()});
    for (size_t i = 0; i < 32; ++i)
      EXPECT_EQ(codes[i], nearest(numbers[i] * 4, Format::E5M2));
  }
}

TEST(Fp8KernelsOnDevices, Assemble) {
  std::vector<std::string> texts;
  for (const region::KernelSource &source : sourcesOf(cuda::Form::Device))
    texts.push_back(source.text);
  for (int architecture : {80, 90}) {
    auto ptx = cuda::lowerToPtx(texts, architecture);
    ASSERT_TRUE(ptx) << ptx.error().message;
    EXPECT_EQ(ptx->find(".ftz"), std::string::npos);
    EXPECT_NE(ptx->find("st.global.v4"), std::string::npos); // one thread's codes, in one store
    EXPECT_EQ(ptx->find("st.global.u8"), std::string::npos);
    assemblePtx(*ptx, architecture);
  }
}

// Runs launch these kernels beside a Program, so the gate of Programs does not see them.
TEST(Fp8KernelsOnDevices, RunAtTheSpeedOfMemory) {
  std::vector<std::string> texts;
  std::map<std::string, int64_t> extents;
  ParsedModule any("func.func @f() { return }");
  cuda::prepareContext(any.context);
  for (auto &[symbol, kernel] :
       cuda::emitFp8Kernels(any.context, {DType::F32, DType::BF16}, cuda::Form::Device))
    extents[symbol] = kernel.extent;
  for (const region::KernelSource &source : sourcesOf(cuda::Form::Device))
    texts.push_back(source.text);
  auto ptx = cuda::lowerToPtx(texts, 90);
  ASSERT_TRUE(ptx) << ptx.error().message;
  gate::Sampler sampler(*ptx);
  auto cluster = planner::loadCluster("h100-sxm");
  const gate::Device device = gate::deviceOf(*cluster, *roofline::processorOf(*cluster));
  const int64_t rows = 16384, depth = 3072, count = rows * depth;
  for (DType type : {DType::F32, DType::BF16}) {
    const gate::Buffer matrix{{type, {count}}}, partials{{DType::I32, {fp8::numWarps}}},
        scales{{DType::F32, {2}}}, codes{{DType::U8, {count}}};
    auto verdictOf = [&](const std::string &symbol, const std::vector<gate::Buffer> &buffers) {
      double bytes = 0;
      for (const gate::Buffer &buffer : buffers)
        bytes += double(program::sizeBytes(buffer.type));
      const program::CudaKernel kernel{symbol, extents.at(symbol), 256, 0};
      gate::SampleOptions options;
      options.numBlocks = 1;
      const gate::Verdict verdict =
          gate::judge(sampler.samples(kernel, buffers, options).front(), bytes, device);
      EXPECT_TRUE(verdict.isJudged) << symbol;
      for (gate::Criterion criterion : verdict.failed)
        ADD_FAILURE() << symbol << ": " << gate::name(criterion);
      std::printf("%s: %.0f bytes in flight, %.3f instructions a byte, sectors %.2f, %.2f of the "
                  "speed of memory\n",
                  symbol.c_str(), verdict.bytesInFlight, verdict.instructionsPerByte,
                  verdict.sectorRatio, verdict.idealSeconds / verdict.seconds);
    };
    // As it lies, and with the summed dim in front.
    for (const std::vector<int64_t> &sizes :
         {std::vector<int64_t>{count, 1, rows, depth, 0, depth, 1, 0},
          {count, 1, depth, rows, 0, 1, depth, 1}}) {
      const gate::Buffer given{{DType::I64, {fp8::numSizes}}, 1, sizes};
      verdictOf(fp8::amaxSymbol(type), {matrix, given, partials});
      for (Format format : fp8::formats)
        verdictOf(fp8::quantiseSymbol(format, type), {matrix, given, scales, codes});
    }
  }
}

} // namespace
