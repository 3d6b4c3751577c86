//===- sparse_kernels_test.cpp - Kernels of compressed sums, without a GPU --===//
//
// Runs the threads one after the other on the CPU and expects the choice of takeLargest. For
// devices the kernels are assembled.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/EmitSparseKernels.h"
#include "codegen/cuda/LowerPtx.h"
#include "runtime/abi/SparseKernels.h"
#include "runtime/exec/LargestElements.h"
#include "tests/codegen/cpu/KernelCheck.h"
#include "tests/codegen/cpu/KernelLibrary.h"
#include "tests/codegen/cuda/Assemble.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace tbc;
namespace sparse = program::sparse;
using Floats = std::vector<float>;

namespace {

std::vector<region::KernelSource> sourcesOf(cuda::Form form) {
  ParsedModule any("func.func @f() { return }"); // a context with tbc's ops
  cuda::prepareContext(any.context);
  std::vector<region::KernelSource> sources;
  for (auto &[symbol, kernel] : cuda::emitSparseKernels(any.context, form)) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    kernel.module->print(stream);
    sources.push_back({symbol, text});
  }
  return sources;
}

/// The host form of the kernels.
class SparseKernels : public testing::Test {
protected:
  static void SetUpTestSuite() {
    auto target = cpu::findCpuTarget("native");
    ASSERT_TRUE(target);
    library = std::make_unique<KernelLibrary>(sourcesOf(cuda::Form::Host), *target);
    ASSERT_TRUE(library->isOpen());
  }
  static void TearDownTestSuite() { library.reset(); }

  /// Runs the last threads first.
  static void run(const char *symbol, std::vector<void *> buffers,
                  int64_t numThreads = cuda::sparseThreadsOnHost) {
    for (int64_t thread = numThreads; thread-- > 0;)
      library->find(symbol)(buffers.data(), thread, thread + 1);
  }

  /// Computes the same as takeLargest, by the kernels.
  static void take(Floats &values, int64_t k, std::vector<int32_t> &indices, Floats &largest) {
    constexpr size_t numThreads = cuda::sparseThreadsOnHost;
    std::vector<int64_t> sizes = {int64_t(values.size()), k}, state = {0, k, sparse::firstShift};
    std::vector<int32_t> counts(numThreads * sparse::numDigits, -7);
    std::vector<int32_t> tallies(2 * numThreads, -7), warpTallies = tallies;
    for (int64_t round = 0; round < sparse::numRounds; ++round) {
      run(sparse::count, {values.data(), state.data(), sizes.data(), counts.data()});
      run(sparse::choose, {counts.data(), state.data()}, 1);
    }
    run(sparse::tally,
        {values.data(), state.data(), sizes.data(), tallies.data(), warpTallies.data()});
    run(sparse::take, {tallies.data(), warpTallies.data(), state.data(), sizes.data(),
                       values.data(), indices.data(), largest.data()});
  }

  static void expectAsTakeLargest(const Floats &values, int64_t k) {
    std::vector<int32_t> indices(size_t(k), -1), wanted = indices;
    Floats largest(size_t(k), 0.0f), taken = largest, left = values, rest = values;
    take(left, k, indices, largest);
    runtime::takeLargest(rest.data(), int64_t(rest.size()), k, wanted.data(), taken.data());
    EXPECT_EQ(indices, wanted) << k << " of " << values.size();
    EXPECT_EQ(std::memcmp(largest.data(), taken.data(), taken.size() * 4), 0);
    EXPECT_EQ(std::memcmp(left.data(), rest.data(), rest.size() * 4), 0);
  }

  static std::unique_ptr<KernelLibrary> library;
};
std::unique_ptr<KernelLibrary> SparseKernels::library;

TEST_F(SparseKernels, ChooseWhatTheHostChooses) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  // Fewer elements than threads, as many, and more with a remainder.
  for (int64_t count : {1, 2, 17, 48, 1001}) {
    Floats values, coarse;
    for (int64_t i = 0; i < count; ++i) {
      // Magnitudes of all sizes down to denormals, and many values equal up to their sign.
      values.push_back(normal(random) * std::ldexp(1.0f, -int(random() % 150)));
      coarse.push_back(float(int(random() % 5) - 2));
    }
    for (int64_t k : {int64_t(1), (count + 2) / 3, count}) {
      expectAsTakeLargest(values, k);
      expectAsTakeLargest(coarse, k);
      expectAsTakeLargest(Floats(size_t(count), -0.0f), k);
    }
  }
  float infinity = std::numeric_limits<float>::infinity();
  for (int64_t k = 1; k <= 5; ++k)
    expectAsTakeLargest({1e30f, NAN, -infinity, 3, infinity}, k);
}

TEST_F(SparseKernels, AddGradientsToWhatIsKept) {
  Floats gradient(100), residual(100), expected(100);
  for (size_t i = 0; i < 100; ++i) {
    gradient[i] = 1.0f / float(i + 1), residual[i] = float(i) * 1e-3f;
    expected[i] = residual[i] + gradient[i];
  }
  std::vector<int64_t> sizes = {100, 3};
  run(sparse::add, {gradient.data(), sizes.data(), residual.data()});
  EXPECT_EQ(residual, expected);
}

/// 3 ranks send 5 entries each for the second of two slices.
TEST_F(SparseKernels, AddUpInTheOrderOfTheRanks) {
  constexpr int64_t numEntries = 5, stride = 4 + 2 * numEntries, first = 4;
  std::vector<std::vector<std::pair<int32_t, float>>> sent = {
      {{0, 1e8f}, {3, 0.5f}, {7, -0.0f}, {8, 2}, {30, 1}},
      {{0, 1}, {7, -0.0f}, {9, 3e-8f}}, // fewer than the others
      {{0, -1e8f}, {3, 1.0f / 3}, {8, -2}, {9, 1}, {31, -7}}};
  std::vector<int32_t> words(3 * stride, -1);
  Floats expected(32, 9.0f), result = expected;
  std::map<int32_t, double> sums;
  for (size_t rank = 0; rank < 3; ++rank)
    for (size_t e = 0; e < sent[rank].size(); ++e) {
      auto [index, value] = sent[rank][e];
      size_t at = rank * stride + first + e;
      words[at] = index;
      std::memcpy(&words[at + numEntries], &value, sizeof value);
      auto [sum, isNew] = sums.try_emplace(index, value);
      if (!isNew)
        sum->second += value;
    }
  for (auto [index, sum] : sums)
    expected[size_t(index)] = float(sum);
  std::vector<int64_t> sizes = {3, numEntries, stride, first, 3};
  run(sparse::sum, {words.data(), words.data(), sizes.data(), result.data()});
  EXPECT_EQ(std::memcmp(result.data(), expected.data(), 32 * 4), 0);
  EXPECT_EQ(result[0], 1);
}

TEST(SparseKernelsOnDevices, Assemble) {
  std::vector<std::string> texts;
  for (const region::KernelSource &source : sourcesOf(cuda::Form::Device))
    texts.push_back(source.text);
  for (int architecture : {80, 90}) {
    auto ptx = cuda::lowerToPtx(texts, architecture);
    ASSERT_TRUE(ptx) << ptx.error().message;
    for (const char *symbol : sparse::all)
      EXPECT_NE(ptx->find(std::string(".entry ") + symbol + "("), std::string::npos) << symbol;
    // Denormals are kept. Counts use shuffles rather than atomics, whose order may vary.
    EXPECT_EQ(ptx->find(".ftz"), std::string::npos);
    EXPECT_EQ(ptx->find("atom."), std::string::npos);
    EXPECT_NE(ptx->find("shfl.sync.bfly.b32"), std::string::npos);
    assemblePtx(*ptx, architecture);
  }
}

} // namespace
