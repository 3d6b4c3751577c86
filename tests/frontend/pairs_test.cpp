//===- pairs_test.cpp - Scores of all pairs of samples at import -----------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// x[batch, 2] is 0, 1, 2 ...; scores = x x^T. At batch 2 they are [[1, 3], [3, 13]].
ModelBuilder withScores() {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  ModelBuilder::attr(b.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{1, 0});
  b.node("MatMul", {"x", "t"}, {"scores"}, "similarity");
  return b;
}

/// Adds the number of samples, a scalar int64 `samples`.
void countSamples(ModelBuilder &b) {
  b.ints("zero", {}, {0});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
}

/// Adds 0, 1, 2 ... over the samples, `numbers`.
void numberSamples(ModelBuilder &b) {
  countSamples(b);
  b.ints("one", {}, {1});
  b.node("Range", {"zero", "samples", "one"}, {"numbers"});
}

TEST(Pairs, ImportWithAWarning) {
  ModelBuilder b = withScores();
  b.node("Identity", {"scores"}, {"y"});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(1, 3, 3, 13));
  EXPECT_THAT(runner.model->warnings,
              Contains(AllOf(HasSubstr("node 'similarity' joins every sample of the batch"),
                             HasSubstr("takes its batch as one micro-batch"))));
  EXPECT_EQ(runner.count("iota"), 0u);
}

/// Two-tower retrieval: the label of a row is its own number.
TEST(Pairs, LabelsNumberTheSamples) {
  ModelBuilder b = withScores();
  numberSamples(b);
  ModelBuilder::attr(b.node("SoftmaxCrossEntropyLoss", {"scores", "numbers"}, {"y"}), "reduction",
                     std::string("none"));
  ModelRunner runner;
  auto loss = [](double other, double own) {
    return DoubleNear(std::log(std::exp(other) + std::exp(own)) - own, 1e-12);
  };
  EXPECT_THAT(runner.run(b), ElementsAre(loss(3, 1), loss(3, 13)));
}

/// CLIP's `arange(len(scores))`: the exporter writes 0, 1 for an example of two samples.
TEST(Pairs, LabelsOfTheExampleNumberEveryBatch) {
  ModelRunner counted, listed;
  counted.options.batch = listed.options.batch = 3;
  ModelBuilder a = withScores(), b = withScores();
  numberSamples(a);
  b.ints("numbers", {2}, {0, 1});
  for (ModelBuilder *model : {&a, &b})
    model->node("SoftmaxCrossEntropyLoss", {"scores", "numbers"}, {"y"}, "loss");
  EXPECT_EQ(counted.run(a), listed.run(b));
  EXPECT_THAT(listed.model->warnings,
              Contains(HasSubstr("'loss' has labels that number the 2 samples of the export")));
  ModelBuilder other = withScores();
  other.ints("numbers", {2}, {1, 0});
  other.node("SoftmaxCrossEntropyLoss", {"scores", "numbers"}, {"y"}, "loss");
  EXPECT_THAT(importError(other.bytes()), HasSubstr("takes labels [2] for scores [batch, batch]"));
}

/// One more column beside the scores of all pairs: a hard negative, or a null passage. Its row has
/// batch + 1 scores at every batch size.
TEST(Pairs, AColumnBesideTheScores) {
  ModelBuilder b = withScores();
  numberSamples(b);
  b.input("negative", {"batch", "1"});
  ModelBuilder::attr(b.node("Concat", {"scores", "negative"}, {"all"}), "axis", int64_t(1));
  ModelBuilder::attr(b.node("SoftmaxCrossEntropyLoss", {"all", "numbers"}, {"y"}), "reduction",
                     std::string("none"));
  for (int64_t batch : {2, 3}) {
    ModelRunner runner;
    runner.options.batch = batch;
    std::vector<double> x, losses;
    for (int64_t i = 0; i < batch; ++i) {
      x.insert(x.end(), {double(2 * i), double(2 * i + 1)});
      runner.inputs["negative"].push_back(0.5 * double(i));
    }
    for (int64_t i = 0; i < batch; ++i) {
      auto score = [&](int64_t j) { return x[2 * i] * x[2 * j] + x[2 * i + 1] * x[2 * j + 1]; };
      double sum = std::exp(0.5 * double(i) - score(i));
      for (int64_t j = 0; j < batch; ++j)
        sum += std::exp(score(j) - score(i));
      losses.push_back(std::log(sum));
    }
    std::vector<double> y = runner.run(b);
    ASSERT_EQ(y.size(), losses.size());
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(y[i], losses[i], 1e-9);
  }
}

/// The same where rows of the batch and others are joined before the product: no score is
/// [batch, batch].
TEST(Pairs, RowsBesideTheSamples) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  numberSamples(b);
  b.floats("null", {1, 2}, {1, 1});
  ModelBuilder::attr(b.node("Concat", {"x", "null"}, {"rows"}), "axis", int64_t(0));
  ModelBuilder::attr(b.node("Transpose", {"rows"}, {"t"}), "perm", std::vector<int64_t>{1, 0});
  b.node("MatMul", {"x", "t"}, {"scores"}, "similarity");
  ModelBuilder::attr(b.node("SoftmaxCrossEntropyLoss", {"scores", "numbers"}, {"y"}), "reduction",
                     std::string("none"));
  // Rows of scores: 1, 3, 1 and 3, 13, 5.
  auto loss = [](std::vector<double> scores, double own) {
    double sum = 0;
    for (double score : scores)
      sum += std::exp(score - own);
    return DoubleNear(std::log(sum), 1e-9);
  };
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(loss({1, 3, 1}, 1), loss({3, 13, 5}, 13)));
  EXPECT_THAT(runner.model->warnings, Contains(HasSubstr("node 'similarity' joins every sample")));
}

TEST(Pairs, TheIdentitySelectsTheDiagonal) {
  ModelBuilder b = withScores();
  b.node("EyeLike", {"scores"}, {"eye"});
  b.node("Mul", {"scores", "eye"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(1, 0, 0, 13));
}

/// SigLIP divides the sum over all pairs by the samples, at every batch size.
TEST(Pairs, ASumIsDividedByTheSamples) {
  ModelBuilder b = withScores();
  countSamples(b);
  ModelBuilder::attr(b.node("Cast", {"samples"}, {"number"}), "to", int64_t(1));
  ModelBuilder::attr(b.node("ReduceSum", {"scores"}, {"sum"}), "keepdims", int64_t(0));
  b.node("Div", {"sum", "number"}, {"y"});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(20. / 2));
  EXPECT_EQ(runner.count("factor_size"), 1u);
  runner.options.batch = 3;
  EXPECT_THAT(runner.run(b), ElementsAre(117. / 3));
}

/// The same where no samples meet: a loss. A quotient of other tensors is no loss.
TEST(Pairs, ASumOverTheBatchIsDividedByTheSamples) {
  for (bool isScalar : {true, false}) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.output("y");
    countSamples(b);
    ModelBuilder::attr(b.node("Cast", {"samples"}, {"number"}), "to", int64_t(1));
    ModelBuilder::attr(b.node("ReduceSum", {"x"}, {"sum"}), "keepdims", int64_t(0));
    b.node("Div", {isScalar ? "sum" : "x", "number"}, {"y"}, "mean");
    ModelRunner runner;
    runner.options.batch = 3;
    if (isScalar)
      EXPECT_THAT(runner.run(b), ElementsAre(15. / 3));
    else
      EXPECT_THAT(importError(b.bytes()),
                  HasSubstr("node 'mean' computes with the batch size as a number"));
  }
}

TEST(Pairs, AMeanOverPairsDividesTwice) {
  ModelBuilder b = withScores();
  ModelBuilder::attr(b.node("ReduceMean", {"scores"}, {"y"}), "keepdims", int64_t(0));
  ModelRunner runner;
  runner.options.batch = 3;
  EXPECT_THAT(runner.run(b), ElementsAre(117. / 9));
  EXPECT_EQ(runner.count("factor_size"), 2u);
}

/// Without scores of pairs a plan may have several micro-batches, and each would number its own.
TEST(Pairs, NumbersOfSamplesNeedThem) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  numberSamples(b);
  ModelBuilder::attr(b.node("Cast", {"numbers"}, {"floats"}), "to", int64_t(1));
  b.ints("last", {1}, {1});
  b.node("Unsqueeze", {"floats", "last"}, {"column"});
  b.node("Add", {"x", "column"}, {"y"}, "sum");
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("node 'sum' uses a table with an entry for each sample"),
                    HasSubstr("or beside scores of all pairs")));
}

/// An unbiased variance: a sum of squares over the batch / (n - 1), at every batch size.
TEST(Pairs, AStatisticIsDividedByTheSamplesButOne) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  countSamples(b);
  b.ints("one", {}, {1});
  b.ints("rows", {1}, {0});
  b.node("Sub", {"samples", "one"}, {"others"});
  ModelBuilder::attr(b.node("Cast", {"others"}, {"number"}), "to", int64_t(1));
  ModelBuilder::attr(b.node("ReduceSum", {"x", "rows"}, {"sum"}), "keepdims", int64_t(0));
  b.node("Div", {"sum", "number"}, {"y"});
  for (int64_t batch : {2, 3}) {
    ModelRunner runner;
    runner.options.batch = batch;
    double count = double(batch); // columns 0 + 2 + 4 .. and 1 + 3 + 5 ..
    EXPECT_THAT(runner.run(b), ElementsAre(count * (count - 1) / (count - 1),
                                           (count * (count - 1) + count) / (count - 1)));
  }
}

/// The same over the elements of all samples, as advantages are normalised: 2 n - 1.
TEST(Pairs, AStatisticIsDividedByTheElementsButOne) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  countSamples(b);
  b.ints("one", {}, {1});
  b.ints("two", {}, {2});
  b.node("Mul", {"samples", "two"}, {"elements"});
  b.node("Sub", {"elements", "one"}, {"others"});
  ModelBuilder::attr(b.node("Cast", {"others"}, {"number"}), "to", int64_t(1));
  ModelBuilder::attr(b.node("ReduceSum", {"x"}, {"sum"}), "keepdims", int64_t(0));
  b.node("Div", {"sum", "number"}, {"y"});
  for (int64_t batch : {2, 3}) {
    ModelRunner runner;
    runner.options.batch = batch;
    double elements = 2 * double(batch);                   // 0, 1, 2 ..
    EXPECT_THAT(runner.run(b), ElementsAre(elements / 2)); // n (n - 1) / 2 / (n - 1)
  }
}

/// SimCLR: rows of two views; the label of a row is the number of its sample's other view.
TEST(Pairs, LabelsNumberTheOtherView) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  numberSamples(b);
  ModelBuilder::attr(b.node("Concat", {"x", "x"}, {"views"}), "axis", int64_t(0));
  ModelBuilder::attr(b.node("Transpose", {"views"}, {"t"}), "perm", std::vector<int64_t>{1, 0});
  b.node("MatMul", {"views", "t"}, {"scores"});
  b.node("Add", {"numbers", "samples"}, {"others"});
  ModelBuilder::attr(b.node("Concat", {"others", "numbers"}, {"labels"}), "axis", int64_t(0));
  ModelBuilder::attr(b.node("SoftmaxCrossEntropyLoss", {"scores", "labels"}, {"y"}), "reduction",
                     std::string("none"));
  auto loss = [](double other, double own) {
    return DoubleNear(std::log(2 * std::exp(other) + 2 * std::exp(own)) - own, 1e-12);
  };
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(loss(3, 1), loss(3, 13), loss(3, 1), loss(3, 13)));
}

TEST(Pairs, ListsOfThemAreRefused) {
  ModelBuilder b = withScores();
  b.ints("flat", {1}, {-1});
  b.node("Reshape", {"scores", "flat"}, {"y"}, "list");
  EXPECT_THAT(importError(b.bytes()),
              HasSubstr("node 'list' lists all pairs of samples along one dim"));
}

} // namespace
