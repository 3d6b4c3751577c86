#include "ir/Attention.h"
#include "ir/Random.h"
#include "passes/decompose/DecomposeComposites.h"
#include "passes/random/UseDropout.h"
#include "tests/passes/StepFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <numeric>

using namespace mlir;

namespace tbc {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using ::testing::HasSubstr;

/// Dropout on x[batch, 3, 2], on the same flattened to [batch * 3, 2], and on w[3, 2].
std::string modelOf(int64_t batch) {
  std::string text = R"(
    func.func @model(%x: tensor<BATCHx3x2xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                                tbc.batch_dim = 0 : i64},
                     %w: tensor<3x2xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"})
        -> (tensor<BATCHx3x2xf32>, tensor<FLATx2xf32>, tensor<3x2xf32>) {
      %a = tbc.dropout %x {tbc.id = "a", ratio = 0.25 : f64}
        : (tensor<BATCHx3x2xf32>) -> tensor<BATCHx3x2xf32>
      %r = tbc.reshape %x {tbc.id = "r", sizes = array<i64: BATCH, 3, 2>, in = array<i64: 1, 1, 1>,
          out = array<i64: 2, 1>} : (tensor<BATCHx3x2xf32>) -> tensor<FLATx2xf32>
      %b = tbc.dropout %r {tbc.id = "b", ratio = 0.25 : f64}
        : (tensor<FLATx2xf32>) -> tensor<FLATx2xf32>
      %c = tbc.dropout %w {tbc.id = "c", ratio = 0.25 : f64} : (tensor<3x2xf32>) -> tensor<3x2xf32>
      return %a, %b, %c : tensor<BATCHx3x2xf32>, tensor<FLATx2xf32>, tensor<3x2xf32>
    })";
  for (auto [word, size] : {std::pair<std::string, int64_t>("BATCH", batch), {"FLAT", 3 * batch}})
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;)
      text.replace(at, word.size(), std::to_string(size));
  return text;
}

/// The three results on ones, for the samples `first` .. `first + batch - 1` of the global batch.
std::vector<std::vector<double>> run(int64_t batch, int64_t first, int64_t step, int64_t seed = 1) {
  ParsedModule module(modelOf(batch));
  EXPECT_TRUE(module) << module.messages;
  EXPECT_TRUE(succeeded(useDropout(module.function("model"), seed))) << module.messages;
  EXPECT_TRUE(succeeded(verify(*module))) << module.messages;
  auto ones = [](kernels::Shape shape) {
    return Tensor::fromDoubles({DType::F32, shape}, Arith::Native,
                               std::vector<double>(kernels::numElements(shape), 1));
  };
  std::vector<int64_t> samples(batch);
  for (int64_t i = 0; i < batch; ++i)
    samples[i] = first + i;
  std::vector<std::vector<double>> results;
  for (const Tensor &tensor : evaluate(module, "model",
                                       {ones({batch, 3, 2}), ones({3, 2}),
                                        Tensor::fromInts({DType::I64, {batch}}, samples),
                                        Tensor::fromInts({DType::I64, {}}, {step})},
                                       Arith::Native))
    results.push_back(tensor.toDoubles());
  return results;
}

TEST(UseDropout, KeepsThreeOfFourAndScalesThem) {
  std::vector<double> values = run(500, 0, 1)[0];
  double kept = 0;
  for (double value : values) {
    EXPECT_TRUE(value == 0 || value == float(1 / 0.75)) << value;
    kept += value != 0;
  }
  // Within four standard deviations of 3000 draws.
  EXPECT_NEAR(kept / double(values.size()), 0.75, 4 * std::sqrt(0.75 * 0.25 / 3000));
}

TEST(UseDropout, MasksBelongToSamplesNotToExecutions) {
  auto whole = run(4, 0, 1);
  for (int64_t first = 0; first < 4; first += 2) {
    auto part = run(2, first, 1);
    for (int result : {0, 1})
      EXPECT_TRUE(
          std::equal(part[result].begin(), part[result].end(), whole[result].begin() + 6 * first));
    EXPECT_EQ(part[2], whole[2]); // no batch: one mask for all
  }
}

TEST(UseDropout, EveryStepOpAndSeedHasItsOwnMask) {
  auto masks = run(8, 0, 1);
  EXPECT_NE(masks[0], run(8, 0, 2)[0]);
  EXPECT_NE(masks[0], run(8, 0, 1, 2)[0]);
  EXPECT_NE(masks[0], run(8, 8, 1)[0]);
  EXPECT_NE(masks[0], masks[1]); // the same elements, another op
}

TEST(UseDropout, CanBeLeftOut) {
  ParsedModule module(modelOf(2));
  removeDropout(module.function("model"));
  EXPECT_TRUE(module.function("model").getOps<DropoutOp>().empty());
  EXPECT_EQ(module.function("model").getNumArguments(), 2u);
}

/// Numbers for x[batch, 3], and for a table without the batch.
std::vector<std::vector<double>> draw(int64_t batch, int64_t first, int64_t step, int64_t seed) {
  std::string size = std::to_string(batch);
  ParsedModule module("func.func @model(%x: tensor<" + size +
                      "x3xf32> {tbc.role = #tbc.role<input>, tbc.name = \"x\", tbc.batch_dim = 0 : "
                      "i64}, %w: tensor<4xf32> {tbc.role = #tbc.role<param>, tbc.name = \"w\"}) -> "
                      "(tensor<" +
                      size +
                      "x3xf32>, tensor<4xf32>) {\n%a = tbc.random_uniform %x {tbc.id = \"a\", "
                      "key = 1 : i64} : (tensor<" +
                      size + "x3xf32>) -> tensor<" + size +
                      "x3xf32>\n%b = tbc.random_uniform %w {tbc.id = \"b\", key = 1 : i64} : "
                      "(tensor<4xf32>) -> tensor<4xf32>\nreturn %a, %b : tensor<" +
                      size + "x3xf32>, tensor<4xf32> }");
  EXPECT_TRUE(module) << module.messages;
  removeDropout(module.function("model")); // takes out no random numbers
  EXPECT_TRUE(succeeded(useDropout(module.function("model"), seed))) << module.messages;
  EXPECT_TRUE(succeeded(verify(*module))) << module.messages;
  std::vector<int64_t> samples(static_cast<size_t>(batch));
  std::iota(samples.begin(), samples.end(), first);
  std::vector<std::vector<double>> results;
  for (const Tensor &tensor :
       evaluate(module, "model",
                {Tensor::fromDoubles({DType::F32, {batch, 3}}, Arith::Native,
                                     std::vector<double>(size_t(batch) * 3, 1)),
                 Tensor::fromDoubles({DType::F32, {4}}, Arith::Native, {1, 2, 3, 4}),
                 Tensor::fromInts({DType::I64, {batch}}, samples),
                 Tensor::fromInts({DType::I64, {}}, {step})},
                Arith::Native))
    results.push_back(tensor.toDoubles());
  return results;
}

TEST(UseDropout, RandomNumbersBelongToSamples) {
  auto whole = draw(6, 0, 2, 1);
  for (int64_t first : {0, 3}) {
    auto part = draw(3, first, 2, 1);
    EXPECT_TRUE(std::equal(part[0].begin(), part[0].end(), whole[0].begin() + 3 * first));
    EXPECT_EQ(part[1], whole[1]); // no batch: one draw for all
  }
  EXPECT_NE(whole[0], draw(6, 0, 3, 1)[0]);
  EXPECT_NE(whole[0], draw(6, 0, 2, 7)[0]);
  EXPECT_NE(whole[0], draw(6, 6, 2, 1)[0]);
}

TEST(UseDropout, RandomNumbersAreUniform) {
  std::vector<double> values = draw(2000, 0, 1, 5)[0];
  double sum = 0, squares = 0;
  for (double value : values) {
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 1);
    sum += value;
    squares += value * value;
  }
  // Mean 1/2 and second moment 1/3, within four standard deviations of 6000 draws.
  EXPECT_NEAR(sum / 6000, 0.5, 4 * std::sqrt(1.0 / 12 / 6000));
  EXPECT_NEAR(squares / 6000, 1.0 / 3, 4 * std::sqrt(4.0 / 45 / 6000));
}

TEST(UseDropout, AttentionDropsWhatItsDecompositionDrops) {
  ParsedModule module(R"(
    func.func @model(%q: tensor<2x2x3x4xf32> {tbc.role = #tbc.role<input>, tbc.name = "q",
                                              tbc.batch_dim = 0 : i64}) -> tensor<2x2x3x4xf32> {
      %o, %m, %l = tbc.attention %q, %q, %q {tbc.id = "a", scale = 0.5 : f64, causal = true,
          dropout = 0.5 : f64} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>)
          -> (tensor<2x2x3x4xf32>, tensor<2x2x3xf32>, tensor<2x2x3xf32>)
      return %o : tensor<2x2x3x4xf32>
    })");
  ASSERT_TRUE(module) << module.messages;
  func::FuncOp model = module.function("model");
  auto evaluateAt = [&](std::vector<int64_t> samples, int64_t step) {
    std::vector<double> ones(48, 1);
    return evaluate(module, "model",
                    {Tensor::fromDoubles({DType::F32, {2, 2, 3, 4}}, Arith::F64, ones),
                     Tensor::fromInts({DType::I64, {2}}, samples),
                     Tensor::fromInts({DType::I64, {}}, {step})},
                    Arith::F64)[0]
        .toDoubles();
  };
  ASSERT_TRUE(succeeded(useDropout(model, 1))) << module.messages;
  ASSERT_TRUE(succeeded(verify(*module))) << module.messages;
  std::vector<double> whole = evaluateAt({0, 1}, 1);
  EXPECT_TRUE(llvm::any_of(whole, [](double value) { return value == 0 || value > 1; }));
  EXPECT_NE(whole, evaluateAt({0, 1}, 2));
  // The dropped elements belong to the sample.
  std::vector<double> swapped = evaluateAt({1, 0}, 1);
  EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + 24, swapped.begin() + 24));
  EXPECT_TRUE(
      succeeded(decomposeComposites(model, [](Operation *op) { return isa<AttentionOp>(op); })));
  std::vector<double> decomposed = evaluateAt({0, 1}, 1);
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(whole[i], decomposed[i], 1e-12);
}

TEST(UseDropout, TheGradientDropsTheSameElements) {
  ParsedModule module(
      "func.func @f(%x: tensor<4xf32>, %s: tensor<i64>, %i: tensor<4xi64>) -> "
      "tensor<4xf32> { %y = tbc.dropout_train %x, %s, %i {ratio = 0.5 : f64, seed = "
      "1 : i64, key = 2 : i64} : (tensor<4xf32>, tensor<i64>, tensor<4xi64>) -> "
      "tensor<4xf32> return %y : tensor<4xf32> }");
  ASSERT_TRUE(module) << module.messages;
  Operation &op = module.function("f").getBody().front().front();
  OpBuilder builder(&op);
  SmallVector<Value> cotangents{op.getOperand(0)}, results(3);
  bool needed[] = {true, false, false};
  ASSERT_TRUE(succeeded(
      cast<DifferentiableOpInterface>(op).buildVjp(builder, cotangents, needed, results)));
  EXPECT_TRUE(isa<DropoutTrainOp>(results[0].getDefiningOp()));
  EXPECT_EQ(results[0].getDefiningOp()->getAttrDictionary(), op.getAttrDictionary());
}

} // namespace
} // namespace tbc
