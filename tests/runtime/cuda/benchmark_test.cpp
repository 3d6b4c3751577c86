//===- benchmark_test.cpp - Matmuls by the fastest algorithm ---------------===//

#include "runtime/cuda/Matmuls.h"
#include "runtime/kernels/Tensor.h"
#include "tests/runtime/cuda/FakeCublasLt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tbc::test {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t m = 3, n = 4, k = 2;
constexpr cuda::DeviceAddress tensorStep = 4096;

class BenchmarkTest : public testing::Test {
protected:
  BenchmarkTest() : cublas(driver) {
    device = *cuda::Device::open(FakeDriver::table(), 0);
    streams = *cuda::Streams::create(device, std::chrono::seconds(30));
    memory = std::move(*cuda::DeviceMemory::allocate(device, 3 * int64_t(tensorStep), "tensors"));
    put(a(), m * k, 1);
    put(b(), k * n, 2);
    put(c(), m * n, 100);
    matmuls = *cuda::Matmuls::create(device, FakeCublasLt::table(),
                                     /*isDeterministic=*/false, streams);
  }

  cuda::DeviceAddress a() const { return memory.address(); }
  cuda::DeviceAddress b() const { return a() + tensorStep; }
  cuda::DeviceAddress c() const { return b() + tensorStep; }
  /// Uploads first, first + 1, ...
  void put(cuda::DeviceAddress at, int64_t count, double first) {
    std::vector<double> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), first);
    auto bytes = Tensor::fromDoubles({DType::F32, {count}}, Arith::Native, values).toBytes();
    ASSERT_TRUE(streams->upload(at, bytes.data(), int64_t(bytes.size())));
  }
  std::vector<double> result() {
    std::vector<unsigned char> bytes(m * n * sizeof(float));
    EXPECT_TRUE(streams->download(bytes.data(), c(), int64_t(bytes.size())));
    return Tensor::fromBytes({DType::F32, {m * n}}, Arith::Native, bytes.data()).toDoubles();
  }
  /// Returns a b, plus the first content of c if `adds`.
  static std::vector<double> expected(bool adds) {
    std::vector<double> values;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = adds ? 100.0 + double(i * n + j) : 0;
        for (int64_t l = 0; l < k; ++l)
          sum += double(1 + i * k + l) * double(2 + l * n + j);
        values.push_back(sum);
      }
    return values;
  }

  Status multiply(bool adds = false) {
    cuda::MatmulShape shape;
    shape.m = m, shape.n = n, shape.k = k;
    shape.strideA = k, shape.strideB = n, shape.strideC = n;
    shape.adds = adds;
    auto matmul = matmuls->find(shape);
    if (!matmul)
      return matmul.error();
    cuda::MatmulAddresses at{a(), b(), c()};
    at.added = adds ? c() : 0;
    return (*matmul)->enqueue(streams->of(program::Stream::Compute), at);
  }

  FakeDriver driver;
  FakeCublasLt cublas;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  cuda::DeviceMemory memory;
  std::shared_ptr<cuda::Matmuls> matmuls;
};

TEST_F(BenchmarkTest, TheFastestWayIsTakenFromTheFirstCallOn) {
  cublas.hasWays({3e-3, 1e-3, 2e-3});
  ASSERT_TRUE(multiply());
  // Each runs once for warm-up and three times timed.
  EXPECT_EQ(cublas.numMatmulsBy(0), 4);
  EXPECT_EQ(cublas.numMatmulsBy(1), 4 + 1);
  EXPECT_EQ(cublas.numMatmulsBy(2), 4);
  ASSERT_TRUE(multiply());
  EXPECT_EQ(cublas.numMatmulsBy(1), 4 + 2);
  EXPECT_EQ(cublas.numMatmuls(), 3 * 4 + 2);
  EXPECT_EQ(result(), expected(false));
  EXPECT_EQ(matmuls->gain(),
            "benchmark: of 1 shapes of matmuls 1 are faster by another algorithm than cuBLASLt's "
            "first; all take 2.000 ms of a step, in place of 6.000");
  EXPECT_THAT(driver.complaints(), IsEmpty());
}

TEST_F(BenchmarkTest, TheLibrarysFirstStaysWhereNoneIsFaster) {
  cublas.hasWays({1e-3, 1e-3, 2e-3});
  ASSERT_TRUE(multiply());
  EXPECT_EQ(cublas.numMatmulsBy(0), 4 + 1);
  EXPECT_THAT(matmuls->gain(), HasSubstr("of 1 shapes of matmuls 0 are faster"));
}

TEST_F(BenchmarkTest, EightWaysAreTriedAtMost) {
  cublas.hasWays({9e-3, 8e-3, 7e-3, 6e-3, 5e-3, 4e-3, 3e-3, 2e-3, 1e-3});
  ASSERT_TRUE(multiply());
  EXPECT_EQ(cublas.numMatmulsBy(7), 4 + 1);
  EXPECT_EQ(cublas.numMatmulsBy(8), 0);
}

TEST_F(BenchmarkTest, ASumInPlaceIsAddedToOnce) {
  cublas.hasWays({3e-3, 1e-3});
  ASSERT_TRUE(multiply(/*adds=*/true));
  EXPECT_EQ(cublas.numMatmulsBy(1), 4 + 1);
  EXPECT_EQ(result(), expected(true));
  EXPECT_THAT(driver.complaints(), IsEmpty());
}

TEST_F(BenchmarkTest, ASumInPlaceIsNotTimedWithoutRoomToDoItElsewhere) {
  cublas.hasWays({3e-3, 1e-3});
  driver.failCall("cuMemAlloc_v2", cuda::DriverCode::OutOfMemory);
  ASSERT_TRUE(multiply(/*adds=*/true));
  EXPECT_EQ(cublas.numMatmulsBy(0), 1);
  EXPECT_EQ(cublas.numMatmuls(), 1);
  EXPECT_EQ(result(), expected(true));
  EXPECT_THAT(matmuls->gain(), HasSubstr("; 1 not timed, for want of memory"));
}

TEST_F(BenchmarkTest, AWayThatIsRefusedAfterAllIsPassedOver) {
  cublas.hasWays({-1, 3e-3, -1, 2e-3});
  ASSERT_TRUE(multiply());
  EXPECT_EQ(cublas.numMatmulsBy(3), 4 + 1);
  EXPECT_EQ(result(), expected(false));
  EXPECT_THAT(matmuls->gain(), HasSubstr("all take 2.000 ms of a step, in place of 2.000"));
}

TEST_F(BenchmarkTest, AFailureIsAnError) {
  cublas.hasWays({-1, -1});
  Status refused = multiply();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::RankFailed);
  EXPECT_EQ(matmuls->gain(), "");
  cublas.hasWays({3e-3, 1e-3});
  driver.failCall("cuEventElapsedTime", cuda::DriverCode::InvalidHandle);
  Status untimed = multiply(/*adds=*/true);
  ASSERT_FALSE(untimed);
  EXPECT_THAT(untimed.error().message, HasSubstr("timing"));
}

TEST_F(BenchmarkTest, WhatIsRecordedIsNotTimed) {
  cublas.hasWays({3e-3, 1e-3});
  ASSERT_TRUE(streams->beginRecording(0, 0));
  ASSERT_TRUE(multiply());
  ASSERT_TRUE(streams->endRecording());
  EXPECT_EQ(cublas.numMatmulsBy(0), 1);
  EXPECT_EQ(cublas.numMatmuls(), 1);
  ASSERT_TRUE(multiply());
  EXPECT_EQ(cublas.numMatmulsBy(1), 4 + 1);
}

TEST_F(BenchmarkTest, WithoutItTheLibrarysFirstIsTaken) {
  cublas.hasWays({3e-3, 1e-3});
  matmuls = nullptr; // its workspace
  matmuls = *cuda::Matmuls::create(device, FakeCublasLt::table());
  ASSERT_TRUE(multiply());
  EXPECT_EQ(cublas.numMatmulsBy(0), 1);
  EXPECT_EQ(cublas.numMatmuls(), 1);
  EXPECT_EQ(matmuls->gain(), "");
}

} // namespace
} // namespace tbc::test
