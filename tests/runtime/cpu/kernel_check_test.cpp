//===- kernel_check_test.cpp - Compares kernels with reference kernels -------===//

#include "runtime/cpu/KernelCheck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tbc::cpu {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using kernels::TensorType;
using testing::HasSubstr;

/// One instruction to be checked.
class KernelCheckTest : public testing::Test {
protected:
  void make(const std::string &op, const kernels::Attrs &attrs,
            const std::vector<TensorType> &operands, const TensorType &result) {
    stage.values = operands;
    stage.values.push_back(result);
    program::Instruction instruction;
    instruction.op = op;
    instruction.attrs = attrs;
    for (size_t i = 0; i < operands.size(); ++i)
      instruction.operands.push_back(program::ValueId(i));
    instruction.results = {program::ValueId(operands.size())};
    block.instructions = {instruction};
    work = {&stage, &block, 0, 1, {instruction.operands, instruction.results}};
  }

  program::Stage stage;
  program::Block block;
  KernelWork work;
};

TEST_F(KernelCheckTest, ASumIsBoundByItsMagnitudes) {
  const TensorType many{DType::F32, {1024}}, one{DType::F32, {}};
  make("reduce_sum", {{"dims", std::vector<int64_t>{0}}}, {many}, one);
  std::vector<double> values(1024, 1);
  for (size_t i = 0; i < values.size(); i += 2)
    values[i] = -1;
  ReferenceResults reference =
      evaluateReference(work, {Tensor::fromDoubles(many, Arith::Native, values)});
  EXPECT_EQ(reference.exact[0].toDoubles()[0], 0);
  // 96 + 8 sqrt(1024) roundings of 2^-24, with magnitudes that sum to 1024.
  EXPECT_NEAR(reference.bounds[0], (96 + 256) * 0x1p-24 * 1024, 1e-6);
  std::string why;
  EXPECT_LE(worstOf(reference, {Tensor::fromDoubles(one, Arith::Native, {0.02})}, why), 1);
  EXPECT_EQ(why, "");
  EXPECT_GT(worstOf(reference, {Tensor::fromDoubles(one, Arith::Native, {0.03125})}, why), 1);
  EXPECT_THAT(why,
              HasSubstr("element 0 of result 0 (f32) is 0.03125, the reference kernel gives 0"));
}

TEST_F(KernelCheckTest, NumbersThatAreNoneMustBeTheSame) {
  const TensorType two{DType::F32, {2}};
  make("div", {}, {two, two}, two);
  ReferenceResults reference =
      evaluateReference(work, {Tensor::fromDoubles(two, Arith::Native, {1, 1}),
                               Tensor::fromDoubles(two, Arith::Native, {0, 2})});
  std::string why;
  EXPECT_EQ(worstOf(reference, {Tensor::fromDoubles(two, Arith::Native, {INFINITY, 0.5})}, why), 0);
  EXPECT_GT(worstOf(reference, {Tensor::fromDoubles(two, Arith::Native, {NAN, 0.5})}, why), 1);
  EXPECT_GT(worstOf(reference, {Tensor::fromDoubles(two, Arith::Native, {INFINITY, NAN})}, why), 1);
}

TEST_F(KernelCheckTest, IntegersAreEqual) {
  const TensorType two{DType::I64, {2}};
  make("add", {}, {two, two}, two);
  ReferenceResults reference =
      evaluateReference(work, {Tensor::fromInts(two, {1, 2}), Tensor::fromInts(two, {3, 4})});
  std::string why;
  EXPECT_EQ(worstOf(reference, {Tensor::fromInts(two, {4, 6})}, why), 0);
  EXPECT_GT(worstOf(reference, {Tensor::fromInts(two, {4, 7})}, why), 1);
  EXPECT_THAT(why, HasSubstr("element 1 of result 0 (2xi64) is 7, the reference kernel gives 6"));
}

TEST(KernelComparisons, CountsUpToTheMost) {
  KernelComparisons some(2);
  EXPECT_TRUE(some.begin("a"));
  EXPECT_TRUE(some.begin("a"));
  EXPECT_FALSE(some.begin("a"));
  EXPECT_TRUE(some.begin("b"));
  KernelComparison one;
  one.count = 1;
  one.worst = 0.5;
  some.add("a", one);
  one.worst = 2;
  one.difference = "it differs";
  one.place = "here";
  some.add("a", one);
  ASSERT_EQ(some.list().size(), 1u);
  EXPECT_EQ(some.list()[0].count, 2);
  EXPECT_EQ(some.list()[0].worst, 2);
  EXPECT_EQ(some.list()[0].place, "here");
}

} // namespace
} // namespace tbc::cpu
