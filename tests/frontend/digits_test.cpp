//===- digits_test.cpp - Affine indices of flattened dims ------------------===//

#include "frontend/onnx/Digits.h"
#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

using frontend::digitsOf;
using frontend::Known;

TEST(Digits, TermsThatOverlapShareADigit) {
  // 96 b + 8 i + j for b < 5, i < 11, j < 16: windows of 16 every 8 places, in rows of 96.
  auto digits = digitsOf(Known::affine({5, 11, 16}, 0, {96, 8, 1}, false), 480);
  ASSERT_TRUE(digits);
  ASSERT_EQ(digits->size(), 2U);
  EXPECT_EQ((*digits)[0].size, 5);
  EXPECT_THAT((*digits)[0].cores, ElementsAre(0U));
  EXPECT_EQ((*digits)[1].size, 96);
  EXPECT_THAT((*digits)[1].coefficients, ElementsAre(1, 8));
}

TEST(Digits, AnOffsetIsSplitToo) {
  // Column 3 of each row.
  auto digits = digitsOf(Known::affine({5}, 3, {4}, false), 20);
  ASSERT_TRUE(digits);
  EXPECT_EQ((*digits)[0].offset, 0);
  EXPECT_EQ((*digits)[1].offset, 3);
  EXPECT_TRUE((*digits)[1].cores.empty());
}

TEST(Digits, CarriesAreRefused) {
  // The last window reaches into the next row.
  EXPECT_FALSE(digitsOf(Known::affine({5, 12, 16}, 0, {96, 8, 1}, false), 480));
  EXPECT_FALSE(digitsOf(Known::affine({5}, 0, {-1}, false), 5));
}

/// x.as_strided((batch, 3, 4), (8, 2, 1)) of x [batch, 8], as PyTorch's newer exporter writes it.
TEST(Digits, WindowsOfEachSample) {
  ModelBuilder b(18);
  b.input("x", {"batch", "8"});
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("eight", {}, {8});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
  b.node("Range", {"zero", "samples", "one"}, {"numbers"});
  b.node("Mul", {"numbers", "eight"}, {"first"});
  b.ints("column", {3}, {-1, 1, 1});
  b.node("Reshape", {"first", "column"}, {"rows"});
  b.ints("windows", {3, 4}, {0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7});
  b.node("Add", {"rows", "windows"}, {"places"});
  b.ints("flat", {1}, {-1});
  b.node("Reshape", {"x", "flat"}, {"list"});
  b.node("Gather", {"list", "places"}, {"y"});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 10, 11, 10, 11,
                                         12, 13, 12, 13, 14, 15));
  EXPECT_EQ(runner.count("iota"), 2U); // of the windows: no index numbers the samples
}

/// PyTorch's older exporter writes the strides of the example's memory. Those of a transposed
/// tensor hold its batch size, here 2: (batch * 4, 2, 3) of strides (1, 16, 8).
TEST(Digits, StridesOfTheExampleAreRefused) {
  ModelBuilder b(18);
  b.input("x", {"batch", "4", "4"});
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("four", {}, {4});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
  b.node("Mul", {"samples", "four"}, {"count"});
  b.node("Range", {"zero", "count", "one"}, {"numbers"});
  b.ints("column", {3}, {-1, 1, 1});
  b.node("Reshape", {"numbers", "column"}, {"rows"});
  b.ints("windows", {2, 3}, {0, 8, 16, 16, 24, 32});
  b.node("Add", {"rows", "windows"}, {"places"});
  b.ints("flat", {1}, {-1});
  b.node("Reshape", {"x", "flat"}, {"list"});
  b.node("Gather", {"list", "places"}, {"y"}, "windows");
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("node 'windows' (Gather): reads a flattened tensor by strides"),
                    HasSubstr("x.contiguous().as_strided(...)")));
}

/// z[:, ::2] = u of z [batch, 4], as PyTorch's older exporter writes it.
TEST(Digits, AssignmentToEveryOtherPlace) {
  ModelBuilder b(18);
  b.input("x", {"batch", "4"});
  b.input("u", {"batch", "2"});
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
  b.node("Range", {"zero", "samples", "one"}, {"numbers"});
  b.ints("behind", {2}, {1, 2});
  b.node("Unsqueeze", {"numbers", "behind"}, {"rows"});
  b.ints("steps", {1, 2, 1}, {0, 2});
  b.ints("two", {1}, {2});
  b.node("Unsqueeze", {"samples", "axis"}, {"size"});
  b.ints("axis", {1}, {0});
  b.ints("unit", {1}, {1});
  ModelBuilder::attr(b.node("Concat", {"size", "two", "unit"}, {"full"}), "axis", int64_t(0));
  b.node("Expand", {"rows", "full"}, {"i"});
  b.node("Expand", {"steps", "full"}, {"j"});
  ModelBuilder::attr(b.node("Concat", {"i", "j"}, {"indices"}), "axis", int64_t(-1));
  b.node("ScatterND", {"x", "indices", "u"}, {"y"});
  ModelRunner runner;
  runner.inputs["u"] = {10, 20, 30, 40};
  EXPECT_THAT(runner.run(b), ElementsAre(10, 1, 20, 3, 30, 5, 40, 7));
}

/// A state of zeros for the exported two samples, times a matrix of each sample.
TEST(Digits, ZerosOfTheExampleTakeEveryBatch) {
  ModelBuilder b(18);
  b.input("x", {"batch", "2", "2"});
  b.output("y");
  b.floats("ones", {2, 2, 2}, std::vector<float>(8, 1));
  b.node("Identity", {"ones"}, {"state"});
  b.node("MatMul", {"state", "x"}, {"y"});
  ModelRunner runner;
  runner.options.batch = 3;
  runner.options.constants = {"ones"};
  EXPECT_THAT(runner.run(b), ElementsAre(2, 4, 2, 4, 10, 12, 10, 12, 18, 20, 18, 20));
}

} // namespace
