//===- matmuls_test.cpp - Einsums by a faked cuBLASLt ---------------------===//

#include "runtime/cuda/Matmuls.h"
#include "runtime/cuda/Streams.h"
#include "runtime/kernels/Kernel.h"
#include "tests/runtime/cuda/FakeCublasLt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::test {
namespace {

using kernels::Arith;
using kernels::Attrs;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;
using Labels = std::vector<int64_t>;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  const char *name;
  Labels lhs, rhs, out;
  DType input = DType::F32, result = DType::F32;
};

// Sizes by label, all different so that exchanged dims are detected.
constexpr int64_t sizes[] = {5, 7, 3, 2, 4, 1};

TensorType typeOf(const Labels &labels, DType dtype) {
  TensorType type{dtype, {}};
  for (int64_t label : labels)
    type.shape.push_back(sizes[label]);
  return type;
}

/// Small integers, so that sums of matmuls are exact in every type.
Tensor tensorOf(const TensorType &type, int64_t seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
    values.push_back(double((i * 5 + seed) % 7 - 3));
  return Tensor::fromDoubles(type, Arith::Native, values);
}

Attrs attrsOf(const Case &c) {
  return Attrs{{"lhs_labels", c.lhs}, {"rhs_labels", c.rhs}, {"out_labels", c.out}};
}

class MatmulsTest : public testing::Test {
protected:
  MatmulsTest() : cublas(driver) {
    device = *cuda::Device::open(FakeDriver::table(), 0);
    streams = *cuda::Streams::create(device, std::chrono::milliseconds(0));
    matmuls = *cuda::Matmuls::create(device, FakeCublasLt::table());
  }

  void check(const Case &c) {
    SCOPED_TRACE(c.name);
    TensorType lhsType = typeOf(c.lhs, c.input), rhsType = typeOf(c.rhs, c.input);
    TensorType outType = typeOf(c.out, c.result);
    Tensor lhs = tensorOf(lhsType, 1), rhs = tensorOf(rhsType, 4);
    auto einsum = cuda::matmulOf(attrsOf(c), lhsType, rhsType, outType);
    ASSERT_TRUE(einsum) << einsum.error().message;
    auto matmul = matmuls->find(einsum->shape);
    ASSERT_TRUE(matmul) << matmul.error().message;
    ASSERT_NE(*matmul, nullptr);
    auto memory = cuda::DeviceMemory::allocate(device, 3 * 4096, "tensors");
    cuda::DeviceAddress a = memory->address(), b = a + 4096, out = b + 4096;
    for (auto [tensor, address] : {std::pair(&lhs, a), std::pair(&rhs, b)}) {
      std::vector<unsigned char> bytes = tensor->toBytes();
      ASSERT_TRUE(streams->upload(address, bytes.data(), int64_t(bytes.size())));
    }
    ASSERT_TRUE((*matmul)->enqueue(streams->of(program::Stream::Compute), einsum->swaps ? b : a,
                                   einsum->swaps ? a : b, out));
    std::vector<unsigned char> bytes(size_t(program::sizeBytes(outType)));
    ASSERT_TRUE(streams->download(bytes.data(), out, int64_t(bytes.size())));
    std::vector<Tensor> expected =
        kernels::findKernel("einsum")({Arith::Native}, attrsOf(c), {lhs, rhs}, {outType});
    EXPECT_EQ(Tensor::fromBytes(outType, Arith::Native, bytes.data()).toDoubles(),
              expected[0].toDoubles());
  }
  std::string refusal(const Case &c) {
    auto einsum = cuda::matmulOf(attrsOf(c), typeOf(c.lhs, c.input), typeOf(c.rhs, c.input),
                                 typeOf(c.out, c.result));
    return einsum ? "" : einsum.error().message;
  }

  FakeDriver driver;
  FakeCublasLt cublas;
  cuda::DevicePtr device;
  std::shared_ptr<cuda::Streams> streams;
  std::shared_ptr<cuda::Matmuls> matmuls;
};

TEST_F(MatmulsTest, DescriptorsMeanTheEinsum) {
  const DType bf16 = DType::BF16;
  const Case cases[] = {
      {"plain", {0, 1}, {1, 2}, {0, 2}},
      {"transposed lhs", {1, 0}, {1, 2}, {0, 2}},
      {"transposed rhs", {0, 1}, {2, 1}, {0, 2}},
      {"both transposed", {1, 0}, {2, 1}, {0, 2}},
      {"transposed result", {0, 1}, {1, 2}, {2, 0}},
      {"transposed result of transposed", {1, 0}, {2, 1}, {2, 0}},
      {"batch", {3, 0, 1}, {3, 1, 2}, {3, 0, 2}},
      {"batch inside of lhs", {0, 3, 1}, {3, 1, 2}, {3, 0, 2}},
      {"batch inside of the result", {3, 0, 1}, {3, 1, 2}, {0, 3, 2}},
      {"rows of several labels", {3, 0, 1}, {1, 2}, {3, 0, 2}},
      {"columns of several labels", {0, 1}, {1, 2, 4}, {0, 2, 4}},
      {"sums over several labels", {3, 0, 1}, {3, 0, 2}, {1, 2}},
      {"free labels apart", {3, 0, 1}, {1, 2}, {0, 3, 2}},
      {"vector and matrix", {1}, {1, 2}, {2}},
      {"matrix and vector", {0, 1}, {1}, {0}},
      {"inner matmul", {0}, {0}, {}},
      {"outer matmul", {0}, {1}, {0, 1}},
      {"labels of one", {0, 5, 1}, {1, 5, 2}, {0, 5, 2}},
      {"bf16", {0, 1}, {1, 2}, {0, 2}, bf16, bf16},
      {"bf16 to f32", {1, 0}, {2, 1}, {0, 2}, bf16, DType::F32},
      {"f16", {0, 1}, {1, 2}, {0, 2}, DType::F16, DType::F16},
  };
  for (const Case &c : cases)
    check(c);
  EXPECT_EQ(cublas.numMatmuls(), int(std::size(cases)));
  EXPECT_THAT(driver.complaints(), IsEmpty());
}

TEST_F(MatmulsTest, AShapeIsAskedForOnce) {
  Case c = {"plain", {0, 1}, {1, 2}, {0, 2}};
  check(c);
  check(c);
  EXPECT_EQ(cublas.numAsked(), 1);
  check({"other", {0, 1}, {1, 4}, {0, 4}});
  EXPECT_EQ(cublas.numAsked(), 2);
}

TEST_F(MatmulsTest, OthersSayWhyTheyAreNone) {
  EXPECT_THAT(refusal({"", {0, 1}, {1, 2}, {0, 2}, DType::I64, DType::I64}),
              HasSubstr("no matmul of i64 and i64"));
  EXPECT_THAT(refusal({"", {0, 1}, {1, 2}, {0, 2}, DType::F64, DType::F64}),
              HasSubstr("no matmul of f64"));
  EXPECT_THAT(refusal({"", {0, 1, 3}, {1, 2}, {0, 2}}), HasSubstr("a sum over one operand"));
  EXPECT_THAT(refusal({"", {3, 0, 4, 1}, {4, 3, 1, 2}, {4, 0, 3, 2}}),
              HasSubstr("several loops around"));
}

TEST_F(MatmulsTest, DeterministicOnesAreNotTakenInParts) {
  auto einsum = cuda::matmulOf(attrsOf({"", {0, 1}, {1, 2}, {0, 2}}), typeOf({0, 1}, DType::F32),
                               typeOf({1, 2}, DType::F32), typeOf({0, 2}, DType::F32));
  ASSERT_TRUE(einsum);
  ASSERT_TRUE(matmuls->find(einsum->shape));
  EXPECT_EQ(cublas.numWithoutParts(), 0);
  auto fixed = cuda::Matmuls::create(device, FakeCublasLt::table(), true);
  ASSERT_TRUE((*fixed)->find(einsum->shape));
  EXPECT_EQ(cublas.numWithoutParts(), 1);
}

TEST_F(MatmulsTest, NoWayIsNothingAndAFailureIsAnError) {
  auto einsum = cuda::matmulOf(attrsOf({"", {0, 1}, {1, 2}, {0, 2}}), typeOf({0, 1}, DType::F32),
                               typeOf({1, 2}, DType::F32), typeOf({0, 2}, DType::F32));
  ASSERT_TRUE(einsum);
  for (const char *function : {"matmulCreate", "matmulSet", "layoutCreate", "preferenceCreate",
                               "preferenceSet", "chooseAlgorithms"}) {
    cublas.fail(function);
    auto other = cuda::Matmuls::create(device, FakeCublasLt::table());
    auto matmul = (*other)->find(einsum->shape);
    ASSERT_FALSE(matmul) << function;
    EXPECT_EQ(matmul.error().code, ErrorCode::RankFailed);
    EXPECT_THAT(matmul.error().message, HasSubstr("cuBLASLt says execution failed"));
  }
  cublas.fail("");
  cublas.hasNoWay();
  auto none = matmuls->find(einsum->shape);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
  matmuls = nullptr;
  EXPECT_EQ(cublas.numAlive(), 0);
}

} // namespace
} // namespace tbc::test
