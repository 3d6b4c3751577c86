#include "passes/decompose/LimitExperts.h"
#include "tests/passes/StepFixture.h"

#include "ir/Experts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::HasSubstr;

/// Two samples of three tokens, two experts; every token asks for both.
constexpr const char *kExperts = R"(
func.func @model(%x: tensor<2x3x2xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0},
                 %w: tensor<2x3x2xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0},
                 %in: tensor<2x4x2xf32> {tbc.role = #tbc.role<param>}, %out: tensor<2x5x2xf32> {tbc.role = #tbc.role<param>})
    -> tensor<6x5xf32> {
  %tokens = tbc.reshape %x {sizes = array<i64: 2, 3, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>} : (tensor<2x3x2xf32>) -> tensor<6x2xf32>
  %weights = tbc.reshape %w {sizes = array<i64: 2, 3, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>} : (tensor<2x3x2xf32>) -> tensor<6x2xf32>
  %y = tbc.routed_experts %tokens, %weights, %in, %out {activation = "silu", gated = true, top = 2 : i64, tbc.id = "experts"} : (tensor<6x2xf32>, tensor<6x2xf32>, tensor<2x4x2xf32>, tensor<2x5x2xf32>) -> tensor<6x5xf32>
  return %y : tensor<6x5xf32>
})";

std::vector<Tensor> inputs(Arith arith, const std::vector<double> &weights) {
  std::vector<Tensor> result;
  int seed = 1;
  for (const kernels::Shape &shape : {kernels::Shape{2, 3, 2}, {2, 3, 2}, {2, 4, 2}, {2, 5, 2}}) {
    std::vector<double> values;
    for (int64_t i = 0, e = kernels::numElements(shape); i < e; ++i)
      values.push_back(double((++seed * 37) % 29) / 16 - 0.75);
    result.push_back(Tensor::fromDoubles({kernels::DType::F32, shape}, arith, values));
  }
  result[1] = Tensor::fromDoubles(result[1].type(), arith, weights);
  return result;
}

const std::vector<double> kAll = {0.5, 0.25, 1, 2, 0.75, 0.5, 1.5, 0.25, 2, 1, 0.5, 3};

TEST(LimitExperts, EnoughSlotsChangeNothing) {
  ParsedModule before(kExperts), after(kExperts);
  auto capacities = limitExperts(after.function("model"), 8);
  ASSERT_TRUE(succeeded(capacities)) << after.messages;
  ASSERT_EQ(capacities->size(), 1u);
  EXPECT_EQ((*capacities)[0], (ExpertCapacity{2, 2, 3, 3}));
  ASSERT_TRUE(succeeded(verify(*after))) << after.messages;
  EXPECT_TRUE(after.function("model").getOps<RoutedExpertsOp>().empty());
  std::vector<Tensor> given = inputs(Arith::Residue61, kAll);
  EXPECT_TRUE(bitwiseEqual(evaluate(before, "model", given, Arith::Residue61)[0],
                           evaluate(after, "model", given, Arith::Residue61)[0]));
}

TEST(LimitExperts, TheLastTokensOfEachSampleAreDropped) {
  ParsedModule before(kExperts), after(kExperts);
  auto capacities = limitExperts(after.function("model"), 0.5); // of a share of 3
  ASSERT_TRUE(succeeded(capacities)) << after.messages;
  EXPECT_EQ((*capacities)[0].capacity, 2);
  // Expert 0 is not asked for by token 0 of sample 0, so it has a slot for token 2.
  std::vector<double> asked = kAll, computed;
  asked[0] = 0;
  computed = asked;
  for (size_t dropped : {5, 10, 11})
    computed[dropped] = 0;
  auto y = [](ParsedModule &module, const std::vector<double> &weights) {
    return evaluate(module, "model", inputs(Arith::Residue61, weights), Arith::Residue61)[0];
  };
  EXPECT_TRUE(bitwiseEqual(y(after, asked), y(before, computed)));
  EXPECT_FALSE(bitwiseEqual(y(after, asked), y(before, asked)));
}

TEST(LimitExperts, RefusesTokensOfMixedSamples) {
  std::string text = kExperts;
  // Tokens come position by position.
  for (const char *name : {"%tokens = tbc.reshape %x", "%weights = tbc.reshape %w"}) {
    std::string source = std::string(name).substr(std::string(name).size() - 2);
    size_t at = text.find(name);
    text.replace(at, std::string(name).size(),
                 source + "t = tbc.transpose " + source +
                     " {permutation = array<i64: 1, 0, 2>} : (tensor<2x3x2xf32>) -> "
                     "tensor<3x2x2xf32>\n  " +
                     std::string(name) + "t");
    at = text.find("sizes = array<i64: 2, 3, 2>", at);
    text.replace(at, 27, "sizes = array<i64: 3, 2, 2>");
    at = text.find("(tensor<2x3x2xf32>) -> tensor<6x2xf32>", at);
    text.replace(at, 38, "(tensor<3x2x2xf32>) -> tensor<6x2xf32>");
  }
  ParsedModule module(text);
  EXPECT_TRUE(failed(limitExperts(module.function("model"), 1)));
  EXPECT_THAT(module.messages, HasSubstr("an order in which samples are mixed"));
}

TEST(LimitExperts, RefusesAModelWithoutExperts) {
  ParsedModule module(kMlp);
  EXPECT_TRUE(failed(limitExperts(module.function("model"), 1)));
  EXPECT_THAT(module.messages, HasSubstr("no experts that tokens are routed to"));
}

} // namespace
} // namespace tbc
