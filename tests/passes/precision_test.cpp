#include "passes/precision/LowerPrecision.h"
#include "tests/passes/StepFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;

LogicalResult toBF16(func::FuncOp model) {
  return lowerPrecision(model, FloatType::getBF16(model.getContext()));
}

bool isBF16(Type type) { return getElementTypeOrSelf(type).isBF16(); }
bool isF32(Type type) { return getElementTypeOrSelf(type).isF32(); }

TEST(LowerPrecision, MatmulsAreNarrowStatisticsAndLossAreWide) {
  ParsedModule module(kMlp);
  ASSERT_TRUE(module && succeeded(toBF16(module.function("model")))) << module.messages;
  buildStep(module);
  auto train = module.function("train");
  EXPECT_TRUE(isBF16(findOp(train, "fc1")->getResult(0).getType()));
  EXPECT_TRUE(isBF16(findOp(train, "norm")->getResult(0).getType()));
  EXPECT_TRUE(isF32(findOp(train, "norm")->getResult(1).getType()));
  EXPECT_TRUE(isBF16(findOp(train, "fc1.bwd.0")->getResult(0).getType()));
  // Cross entropy widens each logit as it reads it.
  EXPECT_TRUE(isBF16(findOp(train, "loss.cross_entropy")->getOperand(0).getType()));
  EXPECT_TRUE(isF32(findOp(train, "loss.cross_entropy")->getResult(0).getType()));
  for (const char *name : {"w1", "b1", "g", "w2"}) {
    EXPECT_TRUE(isBF16(train.getArgumentTypes()[argument(train, TensorRole::Parameter, name)]));
    EXPECT_TRUE(isF32(train.getResultTypes()[result(train, TensorRole::Gradient, name)]));
  }
  auto update = module.function("update");
  EXPECT_TRUE(
      isF32(update.getArgumentTypes()[argument(update, TensorRole::OptimizerState, "w1.master")]));
}

TEST(LowerPrecision, InputsStatesAndResultsKeepTheirTypes) {
  ParsedModule module(kConvNet);
  auto model = module.function("model");
  std::vector<Type> types = model.getResultTypes().vec();
  ASSERT_TRUE(succeeded(toBF16(model))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  EXPECT_EQ(model.getResultTypes().vec(), types);
  EXPECT_TRUE(isF32(model.getArgumentTypes()[argument(model, TensorRole::Input, "x")]));
  EXPECT_TRUE(isF32(model.getArgumentTypes()[argument(model, TensorRole::State, "running_mean")]));
  EXPECT_TRUE(isBF16(findOp(model, "conv")->getResult(0).getType()));
  EXPECT_TRUE(isF32(findOp(model, "bn")->getResult(0).getType()));
}

/// Casts between floats are the identity in residues, so the results must be equal. In floats every
/// result moves by a few roundings to bf16 (8 bits) at most.
TEST(LowerPrecision, ComputesTheSame) {
  for (const char *text : {kMlp, kConvNet}) {
    ParsedModule wide(text), narrow(text);
    ASSERT_TRUE(succeeded(toBF16(narrow.function("model")))) << narrow.messages;
    buildStep(wide);
    buildStep(narrow);
    for (Arith arith : {Arith::Residue61, Arith::Native}) {
      auto expected = evaluate(wide, "train", trainInputs(wide, arith), arith);
      auto actual = evaluate(narrow, "train", trainInputs(narrow, arith), arith);
      ASSERT_EQ(expected.size(), actual.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        if (arith == Arith::Residue61) {
          EXPECT_TRUE(bitwiseEqual(expected[i], actual[i])) << "result " << i;
          continue;
        }
        std::vector<double> a = expected[i].toDoubles(), b = actual[i].toDoubles();
        double largest = 0, difference = 0;
        for (size_t k = 0; k < a.size(); ++k) {
          largest = std::max(largest, std::abs(a[k]));
          difference = std::max(difference, std::abs(a[k] - b[k]));
        }
        EXPECT_LT(difference, 16 * largest / 256) << "result " << i;
      }
    }
  }
}

/// A model that is exported in bf16: its quotient is computed in f32, and so is all that repeats
/// it. The ops without inferred result types (broadcast, select) follow their operands.
TEST(LowerPrecision, ResultsOfANarrowModelFollowTheirOperands) {
  ParsedModule module(R"(
    func.func @model(
        %x: tensor<4x6xbf16> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0},
        %w: tensor<6xbf16> {tbc.role = #tbc.role<param>, tbc.name = "w"},
        %f: tensor<6xf32> {tbc.role = #tbc.role<param>, tbc.name = "f"})
        -> (tensor<4x6xf32> {tbc.name = "y"}) {
      %e = tbc.exp %w : tensor<6xbf16>
      %q = tbc.div %e, %w : tensor<6xbf16>
      %b = tbc.broadcast %q {dims = array<i64: 1>} : (tensor<6xbf16>) -> tensor<4x6xbf16>
      %p = tbc.compare %b, %x {predicate = "lt"}
          : (tensor<4x6xbf16>, tensor<4x6xbf16>) -> tensor<4x6xi1>
      %s = tbc.select %p, %b, %x
          : (tensor<4x6xi1>, tensor<4x6xbf16>, tensor<4x6xbf16>) -> tensor<4x6xbf16>
      %c = tbc.cast %s : (tensor<4x6xbf16>) -> tensor<4x6xf32>
      %g = tbc.broadcast %f {dims = array<i64: 1>} : (tensor<6xf32>) -> tensor<4x6xf32>
      %y = tbc.mul %c, %g : tensor<4x6xf32>
      return %y : tensor<4x6xf32>
    })");
  ASSERT_TRUE(module) << module.messages;
  auto model = module.function("model");
  ASSERT_TRUE(succeeded(toBF16(model))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  buildStep(module);
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  for (const char *name : {"w", "f"})
    EXPECT_TRUE(
        isF32(module.function("train")
                  .getResultTypes()[result(module.function("train"), TensorRole::Gradient, name)]));
}

} // namespace
} // namespace tbc
