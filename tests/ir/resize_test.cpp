//===- resize_test.cpp - Factors of other sizes ------------------------------===//

#include "ir/Resize.h"
#include "tests/ir/ParsedModule.h"

#include <gtest/gtest.h>

#include <set>

using namespace mlir;
using namespace tbc;

namespace {

/// The sizes of the resizable factors.
std::multiset<int64_t> resizableSizes(ParsedModule &module) {
  auto function = module.function("f");
  FactorAnalysis analysis(function);
  std::multiset<int64_t> sizes;
  for (auto [factor, size] : resizableFactors(function, analysis))
    sizes.insert(size);
  return sizes;
}

/// Gives each resizable factor of size `from[i]` size `to[i]`.
LogicalResult resize(ParsedModule &module, const std::map<int64_t, int64_t> &change) {
  auto function = module.function("f");
  FactorAnalysis analysis(function);
  FactorSizes sizes;
  for (auto [factor, size] : resizableFactors(function, analysis))
    if (auto it = change.find(size); it != change.end())
      sizes[factor] = it->second;
  return resizeFactors(function, analysis, sizes);
}

std::string text(ParsedModule &module) {
  std::string result;
  llvm::raw_string_ostream stream(result);
  module->print(stream);
  return result;
}

TEST(Resize, FollowsFactorsThroughReshapes) {
  ParsedModule module(R"(
    func.func @f(%x: tensor<5x12x8xf32>, %w: tensor<24x8xf32>) -> tensor<5x12x2x12xf32> {
      %y = "tbc.einsum"(%x, %w) <{lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 3, 2>,
        out_labels = array<i64: 0, 1, 3>}> : (tensor<5x12x8xf32>, tensor<24x8xf32>)
        -> tensor<5x12x24xf32>
      %z = "tbc.reshape"(%y) <{sizes = array<i64: 5, 12, 2, 12>, in = array<i64: 1, 1, 2>,
        out = array<i64: 1, 1, 1, 1>}> : (tensor<5x12x24xf32>) -> tensor<5x12x2x12xf32>
      return %z : tensor<5x12x2x12xf32>
    })");
  ASSERT_TRUE(module) << module.messages;
  EXPECT_EQ(resizableSizes(module), (std::multiset<int64_t>{2, 5, 8, 12, 12}));
  ASSERT_TRUE(succeeded(resize(module, {{12, 3}, {8, 7}}))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  EXPECT_NE(text(module).find("tensor<5x3x7xf32>, %arg1: tensor<6x7xf32>) -> "
                              "tensor<5x3x2x3xf32>"),
            std::string::npos)
      << text(module);
}

TEST(Resize, ConstantsKeepTheirFirstElementsOfEachSegment) {
  ParsedModule module(R"(
    func.func @f(%a: tensor<2xi64>, %b: tensor<3xi64>) -> tensor<5xi64> {
      %joined = "tbc.concat"(%a, %b) <{dim = 0 : i64}> : (tensor<2xi64>, tensor<3xi64>)
        -> tensor<5xi64>
      %c = "tbc.constant"() <{value = dense<[10, 11, 20, 21, 22]> : tensor<5xi64>}>
        : () -> tensor<5xi64>
      %y = "tbc.add"(%joined, %c) : (tensor<5xi64>, tensor<5xi64>) -> tensor<5xi64>
      return %y : tensor<5xi64>
    })");
  ASSERT_TRUE(module) << module.messages;
  ASSERT_TRUE(succeeded(resize(module, {{3, 2}, {2, 1}}))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  EXPECT_NE(text(module).find("dense<[10, 20, 21]> : tensor<3xi64>"), std::string::npos)
      << text(module);
}

TEST(Resize, ConstantsDoNotGrow) {
  ParsedModule module(R"(
    func.func @f() -> tensor<3xi64> {
      %c = "tbc.constant"() <{value = dense<[1, 2, 3]> : tensor<3xi64>}> : () -> tensor<3xi64>
      return %c : tensor<3xi64>
    })");
  ASSERT_TRUE(module) << module.messages;
  EXPECT_TRUE(failed(resize(module, {{3, 4}})));
  EXPECT_NE(module.messages.find("would have to grow"), std::string::npos) << module.messages;
}

TEST(Resize, BoundSizesStay) {
  ParsedModule rotary(R"(
    func.func @f(%x: tensor<3x4xf32>, %c: tensor<3x2xf32>, %s: tensor<3x2xf32>) -> tensor<3x4xf32> {
      %y = "tbc.rotary"(%x, %c, %s) <{inverse = false}>
        : (tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x4xf32>
      return %y : tensor<3x4xf32>
    })");
  ASSERT_TRUE(rotary) << rotary.messages;
  EXPECT_EQ(resizableSizes(rotary), (std::multiset<int64_t>{3}));
}

/// Steps of a recurrence depend on each other, but there may be fewer, and of fewer units.
TEST(Resize, RecurrencesShrink) {
  ParsedModule module(R"(
    func.func @f(%x: tensor<97x3x20xf32>, %r: tensor<20x5xf32>, %h: tensor<3x5xf32>,
                 %c: tensor<3x5xf32>) -> tensor<97x3x5xf32> {
      %y, %cells, %gates = "tbc.lstm"(%x, %r, %h, %c) <{reverse = false}>
        : (tensor<97x3x20xf32>, tensor<20x5xf32>, tensor<3x5xf32>, tensor<3x5xf32>)
        -> (tensor<97x3x5xf32>, tensor<97x3x5xf32>, tensor<97x3x20xf32>)
      return %y : tensor<97x3x5xf32>
    })");
  ASSERT_TRUE(module) << module.messages;
  ASSERT_TRUE(succeeded(resize(module, {{97, 4}, {5, 2}}))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  EXPECT_NE(text(module).find("%arg0: tensor<4x3x8xf32>, %arg1: tensor<8x2xf32>, %arg2: "
                              "tensor<3x2xf32>"),
            std::string::npos)
      << text(module);
}

TEST(Resize, TablesOfComputedIndicesStay) {
  const std::string gather = R"(
      %y = "tbc.gather"(%table, %i) <{dim = 0 : i64}> : (tensor<7x4xf32>, tensor<3xi64>)
        -> tensor<3x4xf32>
      return %y : tensor<3x4xf32>
    })";
  ParsedModule given("func.func @f(%table: tensor<7x4xf32>, %i: tensor<3xi64>) -> "
                     "tensor<3x4xf32> {" +
                     gather);
  ParsedModule computed("func.func @f(%table: tensor<7x4xf32>, %j: tensor<3xi64>) -> "
                        "tensor<3x4xf32> {\n"
                        "%i = \"tbc.neg\"(%j) : (tensor<3xi64>) -> tensor<3xi64>\n" +
                        gather);
  ASSERT_TRUE(given && computed) << given.messages << computed.messages;
  EXPECT_EQ(resizableSizes(given), (std::multiset<int64_t>{3, 4, 7}));
  EXPECT_EQ(resizableSizes(computed), (std::multiset<int64_t>{3, 4}));
}

} // namespace
