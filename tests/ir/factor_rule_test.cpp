//===- factor_rule_test.cpp - Factor rules fit the types of their ops ------===//

#include "tests/ir/OpCases.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

using namespace mlir;
using namespace tbc;

namespace {

/// Checks that the dims of `type` are equal to the rule's sums of products of loop sizes.
void expectFits(const FactorRule &rule, ArrayRef<FactorRule::Dim> dims, Type type,
                const std::string &what) {
  auto shape = cast<RankedTensorType>(type).getShape();
  ASSERT_EQ(dims.size(), shape.size()) << what;
  for (auto [dim, size] : llvm::zip_equal(dims, shape)) {
    int64_t sum = 0;
    for (const FactorRule::Product &product : dim) {
      int64_t segment = 1;
      for (unsigned loop : product)
        segment *= rule.loops[loop].size;
      sum += segment;
    }
    EXPECT_EQ(sum, size) << what;
  }
}

std::vector<OpCase> allCases() {
  std::vector<OpCase> cases = differentiableCases();
  cases.insert(cases.end(), compositeCases().begin(), compositeCases().end());
  const std::vector<OpCase> others = {
      {"sgd", "2x3xf32, 2x3xf32, f32", "2x3xf32", "weight_decay = 0.1 : f64"},
      {"sgd_momentum", "2x3xf32, 2x3xf32, 2x3xf32, f32", "2x3xf32, 2x3xf32",
       "momentum = 0.9 : f64, nesterov = true, weight_decay = 0.1 : f64"},
      {"adam", "2x3xbf16, 2x3xf32, 2x3xf32, 2x3xf32, f32, i64", "2x3xbf16, 2x3xf32, 2x3xf32",
       "beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.1 : f64"},
      {"adagrad", "2x3xf32, 2x3xf32, 2x3xf32, f32, i64", "2x3xf32, 2x3xf32",
       "rate_decay = 0.1 : f64, epsilon = 1.0e-10 : f64, weight_decay = 0.1 : f64"},
      {"divide_by_root", "2x3xf32, 2x3xf32", "2x3xf32", "epsilon = 1.0e-8 : f64"},
      {"muon_momentum", "2x3xf32, 2x3xf32", "2x3xf32, 2x3xf32",
       "momentum = 0.9 : f64, nesterov = true"},
      {"gather_matrices", "2x3xbf16", "2x3xbf16", ""},
      {"shard_matrices", "2x3xbf16", "2x3xbf16", ""},
      {"divide_by_norm", "2x3xf32, 2x3xf32", "2x3xf32", "epsilon = 1.0e-7 : f64"},
      {"weighted_sum", "2x3xbf16, 2x3xbf16", "2x3xbf16", "alpha = 0.5 : f64, beta = 2.0 : f64"},
      {"muon_step", "2x3xf32, 2x3xf32, f32", "2x3xf32",
       "scale = 2.0 : f64, weight_decay = 0.1 : f64"},
      {"factored_moment", "2x3xf32, 2x3xf32, i64", "2x3xf32",
       "count = 4 : i64, beta2_decay = -0.8 : f64"},
      {"factored_direction", "2x3xf32, 2x3xf32, 2x3xf32, 2x3xf32", "2x3xf32",
       "count = 2 : i64, epsilon = 1.0e-7 : f64"},
      {"root_direction", "2x3xf32, 2x3xf32", "2x3xf32", "epsilon = 1.0e-7 : f64"},
      {"square_totals", "2x3xf32, 2x3xf32", "f32, f32", ""},
      {"adafactor_step", "2x3xf32, 2x3xf32, f32, f32, f32, i64", "2x3xf32",
       "count = 6 : i64, clip_threshold = 1.5 : f64, epsilon = 0.5 : f64, weight_decay = 0.1 : "
       "f64"},
      {"square_sum", "2x3xbf16, 4xf32", "f32", ""},
      {"count_not_finite", "2x3xf16, 4xf32", "f32", ""},
      {"update_loss_scale", "f32, i64, i1", "f32, i64",
       "growth_factor = 2.0 : f64, backoff_factor = 0.5 : f64, growth_interval = 2 : i64"},
      {"step_total", "f32, f32", "f32, f32", ""},
      {"scale_by", "2x3xf32, f32", "2x3xf32", ""},
      {"clip_value", "2x3xf32", "2x3xf32", "limit = 0.5 : f64"},
      {"update_if", "2x3xf32, 2x3xf32, i1", "2x3xf32", ""},
      {"adamw", "2x3xbf16, 2x3xf32, 2x3xf32, 2x3xf32, f32, i64", "2x3xbf16, 2x3xf32, 2x3xf32",
       "beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.1 : f64"},
      {"combine_weights_grad", "2x3x4xf32, 2x2x2x4xf32, 2x3x2xf32", "2x3x2xf32"},
      {"packed_attention", "2x3x42xf32, 2x3xi1", "2x4x3x6xf32, 2x4x3xf32, 2x4x3xf32",
       "scale = 0.4 : f64, causal = true, key_mask = true, heads = 4 : i64, key_heads = 2 : i64, "
       "packed_width = 5 : i64"},
      {"packed_attention_grad", "2x3x24xf32, 2x3x42xf32, 2x3x24xf32, 2x4x3xf32, 2x4x3xf32",
       "2x3x42xf32",
       "scale = 0.4 : f64, causal = false, token_major = \"O\", heads = 4 : i64, "
       "key_heads = 2 : i64, packed_width = 5 : i64",
       true},
      {"bitwise_and", "2x3xi64, 2x3xi64", "2x3xi64"},
      {"bitwise_or", "2x3xi32, 2x3xi32", "2x3xi32"},
      {"bitwise_xor", "2x3xui8, 2x3xui8", "2x3xui8"},
      {"conv_grad_weight", "2x4x6xf32, 2x6x4xf32", "6x2x3xf32",
       "strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, "
       "groups = 2 : i64"},
      {"max_pool_grad", "2x2x6xf32, 2x2x3xf32", "2x2x6xf32",
       "kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>, "
       "dilations = array<i64: 1>"},
      {"avg_pool_grad", "2x2x3xf32", "2x2x6xf32",
       "kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>, "
       "count_include_pad = true"},
  };
  cases.insert(cases.end(), others.begin(), others.end());
  return cases;
}

class Rule : public testing::TestWithParam<OpCase> {};

TEST_P(Rule, FitsTheTypes) {
  ParsedModule module(GetParam().module());
  ASSERT_TRUE(module) << module.messages;
  Operation *op = theOp(module);
  FactorRule rule = cast<ShardableOpInterface>(op).getFactorRule();
  ASSERT_EQ(rule.operands.size(), op->getNumOperands());
  ASSERT_EQ(rule.results.size(), op->getNumResults());
  for (auto [i, type] : llvm::enumerate(op->getOperandTypes()))
    expectFits(rule, rule.operands[i], type, "operand " + std::to_string(i));
  for (auto [i, type] : llvm::enumerate(op->getResultTypes()))
    expectFits(rule, rule.results[i], type, "result " + std::to_string(i));
}

/// Returns the loops that run through `dims`. A dim that is a sum counts only if `withSums`: a
/// slice leaves segments out.
std::set<unsigned> loopsOf(ArrayRef<FactorRule::Dim> dims, bool withSums) {
  std::set<unsigned> loops;
  for (const FactorRule::Dim &dim : dims)
    if (withSums || dim.size() == 1)
      for (const FactorRule::Product &product : dim)
        loops.insert(product.begin(), product.end());
  return loops;
}

TEST_P(Rule, LoopsThatAResultLacksAreReducedOrFixed) {
  ParsedModule module(GetParam().module());
  ASSERT_TRUE(module) << module.messages;
  FactorRule rule = cast<ShardableOpInterface>(theOp(module)).getFactorRule();
  for (const auto &operand : rule.operands)
    for (unsigned loop : loopsOf(operand, false))
      for (auto [i, result] : llvm::enumerate(rule.results))
        if (rule.loops[loop].size > 1 && rule.loops[loop].kind == LoopKind::Parallel) {
          EXPECT_TRUE(loopsOf(result, true).count(loop)) << "loop " << loop << ", result " << i;
        }
}

TEST_P(Rule, CostsAreFinite) {
  ParsedModule module(GetParam().module());
  ASSERT_TRUE(module) << module.messages;
  auto cost = cast<CostOpInterface>(theOp(module));
  EXPECT_GE(cost.getFlops(), 0);
  EXPECT_LT(cost.getFlops(), 1e6);
  EXPECT_TRUE(llvm::is_contained(reshard::kernelClasses(), cost.getKernelClass()));
}

TEST(KernelClass, IsCausalWhereQueriesReadAllKeysBeforeThem) {
  auto classOf = [](const std::string &attributes) {
    OpCase attention = {"attention", "1x2x3x4xf32, 1x2x3x4xf32, 1x2x3x4xf32",
                        "1x2x3x4xf32, 1x2x3xf32, 1x2x3xf32", "scale = 0.5 : f64" + attributes};
    ParsedModule module(attention.module());
    EXPECT_TRUE(module) << module.messages;
    return module ? cast<CostOpInterface>(theOp(module)).getKernelClass() : KernelClass::None;
  };
  EXPECT_EQ(classOf(", causal = false"), KernelClass::Attention);
  EXPECT_EQ(classOf(", causal = true"), KernelClass::CausalAttention);
  // Of tbc's own kernels; with `left` a query reads few keys.
  EXPECT_EQ(classOf(", causal = true, left = 1 : i64"), KernelClass::TiledAttention);
  EXPECT_EQ(classOf(", causal = false, left = 1 : i64"), KernelClass::TiledAttention);
  EXPECT_EQ(classOf(", causal = true, soft_cap = 2.0 : f64"), KernelClass::CausalTiledAttention);
}

/// 2 b h pairs (d + dv) FLOPs.
TEST(AttentionCost, CountsThePairsOfAWindow) {
  auto flopsOf = [](const std::string &attributes) {
    OpCase attention = {"attention", "1x2x30x4xf32, 1x2x40x4xf32, 1x2x40x6xf32",
                        "1x2x30x6xf32, 1x2x30xf32, 1x2x30xf32", "scale = 0.5 : f64" + attributes};
    ParsedModule module(attention.module());
    EXPECT_TRUE(module) << module.messages;
    return module ? cast<CostOpInterface>(theOp(module)).getFlops() : 0;
  };
  const double perKey = 2.0 * 2 * 30 * (4 + 6);
  EXPECT_EQ(flopsOf(", causal = false"), 40 * perKey);
  EXPECT_EQ(flopsOf(", causal = true"), 40 * perKey); // the class says that half is skipped
  EXPECT_EQ(flopsOf(", causal = true, left = 6 : i64"), 7 * perKey);
  EXPECT_EQ(flopsOf(", causal = false, left = 6 : i64, right = 2 : i64"), 9 * perKey);
  EXPECT_EQ(flopsOf(", causal = false, left = 6 : i64"), 40 * perKey);
  EXPECT_EQ(flopsOf(", causal = true, left = 100 : i64"), 40 * perKey);
}

INSTANTIATE_TEST_SUITE_P(All, Rule, testing::ValuesIn(allCases()),
                         [](const testing::TestParamInfo<OpCase> &info) {
                           return info.param.mnemonic + "_" + std::to_string(info.index);
                         });

FactorRule ruleOf(const OpCase &opCase) {
  ParsedModule module(opCase.module());
  if (!module)
    throw std::runtime_error(module.messages);
  return cast<ShardableOpInterface>(theOp(module)).getFactorRule();
}

double flopsOf(const OpCase &opCase) {
  ParsedModule module(opCase.module());
  if (!module)
    throw std::runtime_error(module.messages);
  return cast<CostOpInterface>(theOp(module)).getFlops();
}

TEST(AttentionRule, QueryHeadsAreKeyHeadsTimesGroup) {
  FactorRule rule =
      ruleOf({"attention", "2x6x3x5xf32, 2x2x4x5xf32, 2x2x4x7xf32",
              "2x6x3x7xf32, 2x6x3xf32, 2x6x3xf32", "scale = 1.0 : f64, causal = true"});
  const FactorRule::Product &heads = rule.operands[0][1][0];
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(rule.loops[heads[0]].size, 2);
  EXPECT_EQ(rule.loops[heads[1]].size, 3);
  EXPECT_EQ(rule.operands[1][1][0], FactorRule::Product{heads[0]});
  EXPECT_EQ(rule.results[1][1][0], heads);
  EXPECT_EQ(rule.loops[rule.operands[0][2][0][0]].kind, LoopKind::Fixed);
}

TEST(AttentionRule, FlopsCountTheWholeSquare) {
  std::string sizes = "2x4x8x16xf32, 2x4x8x16xf32, 2x4x8x16xf32";
  EXPECT_EQ(flopsOf({"attention", sizes, "2x4x8x16xf32, 2x4x8xf32, 2x4x8xf32",
                     "scale = 1.0 : f64, causal = true"}),
            4.0 * 2 * 4 * 8 * 8 * 16);
}

TEST(ConvRule, GroupsAreAFactorOfBothChannels) {
  FactorRule rule = ruleOf({"conv", "2x4x6xf32, 6x2x3xf32", "2x6x4xf32",
                            "strides = array<i64: 1>, pads = array<i64: 0, 0>, "
                            "dilations = array<i64: 1>, groups = 2 : i64"});
  unsigned groups = rule.operands[0][1][0][0];
  EXPECT_EQ(rule.loops[groups].size, 2);
  EXPECT_EQ(rule.loops[groups].kind, LoopKind::Parallel);
  EXPECT_EQ(rule.operands[1][0][0][0], groups);
  EXPECT_EQ(rule.results[0][1][0][0], groups);
}

TEST(ConvRule, FlopsAreTwoPerProduct) {
  // 2 samples x 6 outputs x 4 positions, each of 2 inputs x 3 taps.
  EXPECT_EQ(flopsOf({"conv", "2x4x6xf32, 6x2x3xf32", "2x6x4xf32",
                     "strides = array<i64: 1>, pads = array<i64: 0, 0>, "
                     "dilations = array<i64: 1>, groups = 2 : i64"}),
            2.0 * 2 * 6 * 4 * 2 * 3);
}

TEST(NormRule, WeightGradientIsSummedOverRows) {
  FactorRule rule = ruleOf({"norm_scale_grad", "2x3x6xf32, 2x3x6xf32, 2x3xf32, 2x3xf32", "6xf32"});
  EXPECT_EQ(rule.loops[rule.operands[0][0][0][0]].kind, LoopKind::Reduction);
  EXPECT_EQ(rule.loops[rule.operands[0][2][0][0]].kind, LoopKind::Fixed);
}

} // namespace
