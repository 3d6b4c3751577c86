#include "passes/loss/AttachLoss.h"
#include "tests/passes/StepFixture.h"

#include "ir/Movement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

namespace tbc {
namespace {

using kernels::Arith;
using kernels::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A model that returns its input %x of the given type.
std::string identityModel(const std::string &type) {
  return "func.func @model(%x: tensor<" + type +
         "> {tbc.role = #tbc.role<input>, tbc.name = \"x\", tbc.batch_dim = 0 : i64}) -> (tensor<" +
         type + "> {tbc.name = \"y\"}) { return %x : tensor<" + type + "> }";
}

double lossOf(const std::string &type, const LossOptions &options,
              const std::vector<double> &values, const std::vector<double> &labels) {
  ParsedModule module(identityModel(type));
  EXPECT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  EXPECT_TRUE(succeeded(mlir::verify(*module))) << module.messages;
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  inputs[0] = Tensor::fromDoubles(inputs[0].type(), Arith::F64, values);
  if (inputs.size() > 1)
    inputs[1] = Tensor::fromDoubles(inputs[1].type(), Arith::F64, labels);
  return evaluate(module, "train", inputs, Arith::F64)[0].toDoubles()[0];
}

TEST(AttachLoss, CrossEntropyIsTheMeanOverTheGlobalBatch) {
  LossOptions options;
  options.samples = 8;
  // Uniform logits: every element costs log(2), four of them, of 8 samples x 2 elements.
  EXPECT_DOUBLE_EQ(lossOf("2x2x2xf32", options, std::vector<double>(8, 1), {0, 1, 1, 0}),
                   4 * std::log(2) / 16);
}

TEST(AttachLoss, IgnoredLabelsCostNothing) {
  EXPECT_DOUBLE_EQ(lossOf("2x2xf32", {}, {0, 0, 0, 0}, {1, -100}), std::log(2) / 2);
}

TEST(AttachLoss, MeanSquaredErrorIsTheMeanOfSquares) {
  LossOptions options;
  options.kind = LossKind::MeanSquaredError;
  EXPECT_DOUBLE_EQ(lossOf("2x2xf32", options, {1, 2, 3, 4}, {0, 2, 3, 2}), (1 + 4) / 4.);
}

TEST(AttachLoss, OutputIsTheLossItself) {
  LossOptions options;
  options.kind = LossKind::Output;
  EXPECT_DOUBLE_EQ(lossOf("4xf32", options, {1, 2, 3, 4}, {}), 2.5);
}

TEST(AttachLoss, LossIsInF32) {
  ParsedModule module(identityModel("2x2xbf16"));
  ASSERT_TRUE(succeeded(attachLoss(*module, {}))) << module.messages;
  EXPECT_TRUE(mlir::getElementTypeOrSelf(module.function("train").getResultTypes()[0]).isF32());
}

TEST(AttachLoss, DropsWhatTheLossDoesNotNeed) {
  ParsedModule module(kMlp);
  ASSERT_TRUE(module && succeeded(attachLoss(*module, {}))) << module.messages;
  std::vector<std::string> ids = idsOf(module.function("train"));
  EXPECT_THAT(ids, ElementsAre("fc1", "bias", "add", "norm", "gelu", "scale", "mul", "residual",
                               "fc2", "loss.cross_entropy", "loss.constant", "loss.broadcast",
                               "loss.compare", "loss.cast", "loss.factor_size", "loss.broadcast.1",
                               "loss.div", "loss.reduce_sum", "loss.reduce_sum.1"));
}

TEST(AttachLoss, LabelsOfAFlattenedBatchHaveItsDimsApart) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x3x5xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0 : i64})
        -> tensor<6x5xf32> {
      %y = tbc.reshape %x {sizes = array<i64: 2, 3, 5>, in = array<i64: 1, 1, 1>,
          out = array<i64: 2, 1>} : (tensor<2x3x5xf32>) -> tensor<6x5xf32>
      return %y : tensor<6x5xf32>
    })");
  ASSERT_TRUE(module && succeeded(attachLoss(*module, {}))) << module.messages;
  auto train = module.function("train");
  unsigned labels = argument(train, TensorRole::Label, "labels");
  EXPECT_EQ(mlir::cast<mlir::RankedTensorType>(train.getArgumentTypes()[labels]).getShape(),
            llvm::ArrayRef<int64_t>({2, 3}));
  auto size = mlir::cast<FactorSizeOp>(findOp(train, "loss.factor_size"));
  EXPECT_EQ(size.getCount(), 3u);
  EXPECT_EQ(size.getSamples(), 2u);
}

// The loss is a mean over the global batch, batch statistics over one execution.
TEST(SetBatchSizes, TellsTheLossFromBatchStatistics) {
  ParsedModule module(kConvNet);
  buildStep(module);
  auto train = module.function("train");
  setBatchSizes(train, 32, 8);
  int losses = 0, statistics = 0;
  for (FactorSizeOp size : train.getOps<FactorSizeOp>()) {
    bool isLoss = size->hasAttr(kGlobalBatchAttr);
    EXPECT_EQ(size.getSamples(), isLoss ? 32u : 8u);
    ++(isLoss ? losses : statistics);
  }
  EXPECT_GT(losses, 0);
  EXPECT_GT(statistics, 0);
}

TEST(AttachLoss, NamesTheOutputsIfThereIsNoSuchOne) {
  ParsedModule module(kMlp);
  LossOptions options;
  options.output = "logit";
  EXPECT_TRUE(failed(attachLoss(*module, options)));
  EXPECT_THAT(module.messages, HasSubstr("no output \"logit\"; it has \"logits\" \"hidden\""));
}

/// x[2, 3] to a scalar by `body`, which defines %y from the weighted %p, its sum %s and the weights
/// %w.
std::string scalarModel(const std::string &body) {
  return "func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.name = \"x\", "
         "tbc.batch_dim = 0 : i64}, %w: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "
         "\"w\", tbc.batch_dim = 0 : i64}) -> "
         "tensor<f32> {\n"
         "  %p = tbc.mul %x, %w : tensor<2x3xf32>\n"
         "  %s = tbc.reduce_sum %p {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>\n" +
         body + "  return %y : tensor<f32>\n}";
}

TEST(AttachLoss, TakesAMeanThatTheModelMakesItself) {
  ParsedModule module(scalarModel(
      "  %n = tbc.factor_size {count = 3 : i64, samples = 2 : i64} : () -> tensor<f32>\n"
      "  %y = tbc.div %s, %n : tensor<f32>\n"));
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  auto size = mlir::cast<FactorSizeOp>(findOp(module.function("train"), "loss.factor_size"));
  EXPECT_EQ(size.getCount(), 3u);
  EXPECT_EQ(size.getSamples(), 8u);
  EXPECT_EQ(module.function("train").getNumResults(), 1u);
}

/// Means keep their dims as ReduceMean does, and are added: the loss is [1, 1].
TEST(AttachLoss, ALossOfOneElementIsAScalar) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                        tbc.batch_dim = 0 : i64})
        -> tensor<1x1xf32> {
      %s = tbc.reduce_sum %x {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>
      %n = tbc.factor_size {count = 3 : i64, samples = 2 : i64} : () -> tensor<f32>
      %m = tbc.div %s, %n : tensor<f32>
      %k = tbc.reshape %m {sizes = array<i64>, in = array<i64>, out = array<i64: 0, 0>}
        : (tensor<f32>) -> tensor<1x1xf32>
      %two = tbc.constant dense<2.0> : tensor<1x1xf32> : tensor<1x1xf32>
      %t = tbc.mul %k, %two : tensor<1x1xf32>
      %y = tbc.add %t, %k : tensor<1x1xf32>
      return %y : tensor<1x1xf32>
    })");
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  inputs[0] = Tensor::fromDoubles(inputs[0].type(), Arith::F64, {1, 2, 3, 4, 5, 6});
  double loss = evaluate(module, "train", inputs, Arith::F64)[0].toDoubles()[0];
  EXPECT_NEAR(loss, 3 * 21 / 24., 1e-12); // a share of 8 samples
}

/// A batch of one sample has one loss for each sample.
TEST(AttachLoss, OneSampleIsNoScalar) {
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  EXPECT_DOUBLE_EQ(lossOf("1xf32", options, {4}, {}), 0.5);
}

TEST(AttachLoss, CountsWhatAWeightedMeanCounts) {
  ParsedModule module(
      scalarModel("  %n = tbc.reduce_sum %w {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> "
                  "tensor<f32>\n"
                  "  %y = tbc.div %s, %n : tensor<f32>\n"));
  LossOptions options;
  options.kind = LossKind::Output;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  auto train = module.function("train");
  ASSERT_EQ(train.getNumResults(), 2u);
  EXPECT_EQ(result(train, TensorRole::Count, "count"), 1u);
}

/// A divisor that is trained is no count of elements: it has a gradient.
TEST(AttachLoss, CountsAreNotTrained) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "x",
                                        tbc.batch_dim = 0 : i64},
                     %v: tensor<3xf32> {tbc.role = #tbc.role<param>, tbc.name = "v"})
        -> tensor<f32> {
      %s = tbc.reduce_sum %x {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>
      %vs = tbc.broadcast %v {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3xf32>
      %w = tbc.mul %x, %vs : tensor<2x3xf32>
      %n = tbc.reduce_sum %w {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>
      %y = tbc.div %s, %n : tensor<f32>
      return %y : tensor<f32>
    })");
  LossOptions options;
  options.kind = LossKind::Output;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  EXPECT_EQ(module.function("train").getNumResults(), 1u) << "a count";
  EXPECT_THAT(module.messages, HasSubstr("takes its batch as one micro-batch"));
}

/// max(sum(w), 1) of integer weights, and sum(w) + 0.5, whose 0.5 all shares make up together.
TEST(AttachLoss, CountsOfMeansMayHaveALimitOrAnEpsilon) {
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  for (const auto &[body, count] :
       {std::pair<std::string, double>(
            "  %i = tbc.cast %w : (tensor<2x3xf32>) -> tensor<2x3xi64>\n"
            "  %c = tbc.cast %i : (tensor<2x3xi64>) -> tensor<2x3xf32>\n"
            "  %n = tbc.reduce_sum %c {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> "
            "tensor<f32>\n"
            "  %o = tbc.constant dense<1.0> : tensor<f32> : tensor<f32>\n"
            "  %m = tbc.maximum %n, %o : tensor<f32>\n",
            12),
        std::pair<std::string, double>(
            "  %n = tbc.reduce_sum %w {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> "
            "tensor<f32>\n"
            "  %o = tbc.constant dense<0.5> : tensor<f32> : tensor<f32>\n"
            "  %m = tbc.add %n, %o : tensor<f32>\n",
            12 + 0.5 * 2 / 8)}) {
    ParsedModule module(scalarModel(body + "  %y = tbc.div %s, %m : tensor<f32>\n"));
    ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
    std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
    inputs[1] = Tensor::fromDoubles(inputs[1].type(), Arith::F64, {2, 2, 2, 2, 2, 2});
    EXPECT_DOUBLE_EQ(evaluate(module, "train", inputs, Arith::F64)[1].toDoubles()[0], count);
  }
}

/// -(-0.5 * sum(x w) / sum(w)), as `-(rates * mask).sum() / mask.sum()` and a factor of a loss.
TEST(AttachLoss, AWeightedMeanMayHaveASignAndAFactor) {
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  std::string sum = "  %n = tbc.reduce_sum %w {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> "
                    "tensor<f32>\n";
  std::vector<double> losses;
  for (const std::string &body :
       {sum + "  %y = tbc.div %s, %n : tensor<f32>\n",
        sum + "  %c = tbc.constant dense<-0.5> : tensor<f32> : tensor<f32>\n"
              "  %f = tbc.mul %s, %c : tensor<f32>\n"
              "  %d = tbc.div %f, %n : tensor<f32>\n"
              "  %y = tbc.neg %d : tensor<f32>\n"}) {
    ParsedModule module(scalarModel(body));
    ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
    EXPECT_EQ(result(module.function("train"), TensorRole::Count, "count"), 1u);
    losses.push_back(
        evaluate(module, "train", trainInputs(module, Arith::F64), Arith::F64)[0].toDoubles()[0]);
  }
  EXPECT_NE(losses[0], 0);
  EXPECT_DOUBLE_EQ(losses[1], 0.5 * losses[0]);
}

/// 2 * sum(x w) / samples - mean(x w) + 6: each share is of the 8 samples of the global batch, and
/// four micro-batches of 2 have the 6 together.
TEST(AttachLoss, SumsOfMeansAreSumsOfShares) {
  ParsedModule module(scalarModel(
      "  %n = tbc.factor_size {count = 1 : i64, samples = 2 : i64} : () -> tensor<f32>\n"
      "  %m = tbc.factor_size {count = 3 : i64, samples = 2 : i64} : () -> tensor<f32>\n"
      "  %two = tbc.constant dense<2.0> : tensor<f32> : tensor<f32>\n"
      "  %six = tbc.constant dense<6.0> : tensor<f32> : tensor<f32>\n"
      "  %a = tbc.div %s, %n : tensor<f32>\n"
      "  %b = tbc.mul %a, %two : tensor<f32>\n"
      "  %c = tbc.div %s, %m : tensor<f32>\n"
      "  %d = tbc.sub %b, %c : tensor<f32>\n"
      "  %y = tbc.add %d, %six : tensor<f32>\n"));
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  inputs[0] = Tensor::fromDoubles(inputs[0].type(), Arith::F64, {1, 2, 3, 4, 5, 6});
  inputs[1] = Tensor::fromDoubles(inputs[1].type(), Arith::F64, {1, 1, 1, 1, 1, 1});
  double loss = evaluate(module, "train", inputs, Arith::F64)[0].toDoubles()[0];
  EXPECT_NEAR(loss, 2 * 21 / 8. - 21 / 24. + 6 / 4., 1e-6); // constants are f32;
}

/// A product of sums over the batch has no shares: the step has one micro-batch.
TEST(AttachLoss, AnotherFunctionOfSumsIsTheLossOfTheStep) {
  ParsedModule module(scalarModel("  %y = tbc.mul %s, %s : tensor<f32>\n"));
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  EXPECT_THAT(module.messages, HasSubstr("takes its batch as one micro-batch"));
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  inputs[0] = Tensor::fromDoubles(inputs[0].type(), Arith::F64, {1, 2, 3, 4, 5, 6});
  inputs[1] = Tensor::fromDoubles(inputs[1].type(), Arith::F64, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(evaluate(module, "train", inputs, Arith::F64)[0].toDoubles()[0], 21. * 21);
}

/// A sum over the samples is shared as it is, whatever the global batch.
TEST(AttachLoss, ASumIsNotDivided) {
  ParsedModule module(scalarModel("  %y = tbc.add %s, %s : tensor<f32>\n"));
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  EXPECT_EQ(module.messages, "");
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  inputs[0] = Tensor::fromDoubles(inputs[0].type(), Arith::F64, {1, 2, 3, 4, 5, 6});
  inputs[1] = Tensor::fromDoubles(inputs[1].type(), Arith::F64, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(evaluate(module, "train", inputs, Arith::F64)[0].toDoubles()[0], 2. * 21);
}

/// A mean over features of a sum over the batch is no mean over samples.
TEST(AttachLoss, AStatisticOfTheBatchIsTheLossOfTheStep) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0 : i64}) -> tensor<f32> {
      %r = tbc.reduce_sum %x {dims = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<3xf32>
      %q = tbc.mul %r, %r : tensor<3xf32>
      %y = tbc.reduce_sum %q {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
      return %y : tensor<f32>
    })");
  LossOptions options;
  options.kind = LossKind::Output;
  EXPECT_TRUE(succeeded(attachLoss(*module, options)));
  EXPECT_THAT(module.messages, HasSubstr("takes its batch as one micro-batch"));
}

/// The mean of 2 samples is subtracted from each: 2 micro-batches would subtract two means.
TEST(AttachLoss, WarnsOfAStatisticInTheLossOfASample) {
  auto messages = [](const std::string &subtracted) {
    ParsedModule module(R"(
      func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0 : i64}) -> tensor<f32> {
        %s = tbc.reduce_sum %x {dims = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<3xf32> loc("total")
        %b = tbc.broadcast %s {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3xf32>
        %d = tbc.sub %x, )" +
                        subtracted +
                        R"( : tensor<2x3xf32>
        %q = tbc.mul %d, %d : tensor<2x3xf32>
        %y = tbc.reduce_sum %q {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>
        return %y : tensor<f32>
      })");
    LossOptions options;
    options.kind = LossKind::Output;
    EXPECT_TRUE(succeeded(attachLoss(*module, options))) << module.messages;
    return module.messages;
  };
  EXPECT_THAT(messages("%b"), HasSubstr("computes a statistic over the samples"));
  EXPECT_THAT(messages("%b"), HasSubstr("--pin accumulation=1"));
  EXPECT_EQ(messages("%x"), "");
}

/// Weights of a softmax over the samples: 2 micro-batches would have two softmaxes.
TEST(AttachLoss, WarnsOfAnOpAlongTheSamples) {
  auto messages = [](const std::string &op) {
    ParsedModule module(R"(
      func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0 : i64}) -> tensor<f32> {
        %s = )" + op + R"( : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("along")
        %q = tbc.mul %s, %x : tensor<2x3xf32>
        %y = tbc.reduce_sum %q {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>
        return %y : tensor<f32>
      })");
    LossOptions options;
    options.kind = LossKind::Output;
    EXPECT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
    return module.messages;
  };
  EXPECT_THAT(messages("tbc.softmax %x {dim = 0 : i64}"), HasSubstr("runs along the samples"));
  EXPECT_THAT(messages("tbc.running_sum %x {dim = 0 : i64, exclusive = false, reverse = false}"),
              HasSubstr("--pin accumulation=1"));
  EXPECT_EQ(messages("tbc.softmax %x {dim = 1 : i64}"), "");
}

/// The mean of logits is no loss; the one value that a critic gives a sample may be.
TEST(AttachLoss, WarnsOfTheMeanOfAMatmul) {
  auto messages = [](const std::string &classes) {
    const std::string logits = "tensor<2x" + classes + "xf32>", w = "tensor<3x" + classes + "xf32>";
    ParsedModule module("func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, "
                        "tbc.batch_dim = 0 : i64}, %w: " +
                        w + " {tbc.role = #tbc.role<param>, tbc.name = \"w\"}) -> " + logits +
                        " {\n  %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 2>, rhs_labels = "
                        "array<i64: 2, 1>, out_labels = array<i64: 0, 1>} : (tensor<2x3xf32>, " +
                        w + ") -> " + logits + "\n  return %y : " + logits + "\n}");
    LossOptions options;
    options.kind = LossKind::Output;
    EXPECT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
    return module.messages;
  };
  EXPECT_THAT(messages("5"), HasSubstr("take --loss cross-entropy"));
  EXPECT_EQ(messages("1"), "");
}

/// Rows of two views: the batch is a part of each segment of the dim.
TEST(AttachLoss, ASumOverTwoViewsOfEachSampleIsShared) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0 : i64}) -> tensor<f32> {
      %c = tbc.concat %x, %x {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
      %y = tbc.reduce_sum %c {dims = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<f32>
      return %y : tensor<f32>
    })");
  LossOptions options;
  options.kind = LossKind::Output;
  EXPECT_TRUE(succeeded(attachLoss(*module, options)));
  EXPECT_EQ(module.messages, "");
}

/// A model of the scores of all pairs, x x^T, that returns %s, and what is made of it.
std::string scoresModel(const std::string &type, const std::string &body) {
  return "func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, "
         "tbc.name = \"x\", tbc.batch_dim = 0 : i64}) -> tensor<" +
         type +
         "> {\n  %s = tbc.einsum %x, %x {lhs_labels = array<i64: 0, 2>, "
         "rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 1>} : (tensor<2x3xf32>, "
         "tensor<2x3xf32>) -> tensor<2x2xf32>\n" +
         body + "}";
}

/// The step has one micro-batch, so the number that the model returns is its loss.
TEST(AttachLoss, TakesALossOverPairsAsItIs) {
  ParsedModule module(scoresModel(
      "f32", "  %y = tbc.reduce_sum %s {dims = array<i64: 0, 1>} : (tensor<2x2xf32>) -> "
             "tensor<f32>\n  return %y : tensor<f32>\n"));
  LossOptions options;
  options.kind = LossKind::Output;
  options.samples = 8;
  ASSERT_TRUE(module && succeeded(attachLoss(*module, options))) << module.messages;
  std::vector<Tensor> inputs = trainInputs(module, Arith::F64);
  inputs[0] = Tensor::fromDoubles(inputs[0].type(), Arith::F64, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(evaluate(module, "train", inputs, Arith::F64)[0].toDoubles(),
              ElementsAre(5 + 14 + 14 + 50));
}

TEST(AttachLoss, ScoresOfPairsAreNoLoss) {
  for (LossKind kind : {LossKind::CrossEntropy, LossKind::MeanSquaredError, LossKind::Output}) {
    ParsedModule module(scoresModel("2x2xf32", "  return %s : tensor<2x2xf32>\n"));
    ASSERT_TRUE(module) << module.messages;
    LossOptions options;
    options.kind = kind;
    EXPECT_TRUE(failed(attachLoss(*module, options)));
    EXPECT_THAT(module.messages, HasSubstr("pairs the samples of a batch; export the model with "
                                           "its loss"));
  }
}

/// The scores that allow them may be an output beside the loss.
TEST(AttachLoss, NumbersOfSamplesNeedPairsInTheLoss) {
  ParsedModule module(R"(
    func.func @model(%x: tensor<2x3xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0 : i64})
        -> tensor<2xf32> {
      %i = tbc.iota {dim = 0 : i64} : () -> tensor<2xi64>
      %n = tbc.cast %i : (tensor<2xi64>) -> tensor<2xf32>
      %r = tbc.reduce_sum %x {dims = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
      %y = tbc.mul %r, %n : tensor<2xf32>
      return %y : tensor<2xf32>
    })");
  ASSERT_TRUE(module) << module.messages;
  LossOptions options;
  options.kind = LossKind::Output;
  EXPECT_TRUE(failed(attachLoss(*module, options)));
  EXPECT_THAT(module.messages, HasSubstr("numbers the samples of the batch"));
}

} // namespace
} // namespace tbc
