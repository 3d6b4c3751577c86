//===- sample_order_test.cpp - Sorts of the samples ------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;

namespace {

/// x [batch, 2] in the order of `lengths` [batch], from the largest on: `sorted`. As exporters
/// write torch.nn.utils.rnn.pack_padded_sequence(..., enforce_sorted=False).
ModelBuilder withSortedSamples() {
  ModelBuilder b(18);
  b.input("x", {"batch", "2"});
  b.input("lengths", {"batch"}, /*isFloat=*/false);
  b.output("y");
  b.node("Shape", {"lengths"}, {"all"});
  b.node("TopK", {"lengths", "all"}, {"sorted_lengths", "order"}, "sort");
  b.node("Gather", {"x", "order"}, {"sorted"});
  return b;
}

/// Adds the inverse order, `places`.
void addPlaces(ModelBuilder &b) {
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.node("Size", {"order"}, {"samples"});
  b.node("Range", {"zero", "samples", "one"}, {"numbers"});
  b.node("ConstantOfShape", {"all"}, {"zeros_f"});
  ModelBuilder::attr(b.node("Cast", {"zeros_f"}, {"zeros"}), "to", int64_t(7));
  b.node("ScatterElements", {"zeros", "order", "numbers"}, {"places"});
}

/// Adds `scaled`: sorted samples times sorted lengths.
void scale(ModelBuilder &b) {
  b.ints("last", {1}, {1});
  ModelBuilder::attr(b.node("Cast", {"sorted_lengths"}, {"factors"}), "to", int64_t(1));
  b.node("Unsqueeze", {"factors", "last"}, {"column"});
  b.node("Mul", {"sorted", "column"}, {"scaled"}, "scale");
}

/// Runs models at three samples of lengths 5, 9 and 7.
struct Runner : ModelRunner {
  Runner() {
    options.batch = 3;
    inputs["lengths"] = {5, 9, 7};
  }
};

TEST(SampleOrder, ASortThatIsTakenBackDisappears) {
  ModelBuilder b = withSortedSamples();
  scale(b);
  addPlaces(b);
  b.node("Gather", {"scaled", "places"}, {"y"});
  Runner made;
  EXPECT_THAT(made.run(b), ElementsAre(0, 5, 18, 27, 28, 35));
  EXPECT_EQ(made.count("topk"), 0u);
  EXPECT_EQ(made.count("gather"), 0u);
  EXPECT_EQ(made.count("iota"), 0u);
}

/// A loss that is a mean over the batch needs no inverse.
TEST(SampleOrder, ASumOverTheSamplesHasNoOrder) {
  ModelBuilder b = withSortedSamples();
  scale(b);
  b.ints("first", {1}, {0});
  ModelBuilder::attr(b.node("ReduceSum", {"scaled", "first"}, {"y"}), "keepdims", int64_t(0));
  Runner made;
  EXPECT_THAT(made.run(b), ElementsAre(46, 67));
  EXPECT_EQ(made.count("topk"), 0u);
}

/// Sorted samples beside others, and sorted results, are another function.
TEST(SampleOrder, ASortThatResultsDependOnStays) {
  for (bool isOutput : {false, true}) {
    ModelBuilder b = withSortedSamples();
    if (isOutput)
      b.node("Identity", {"sorted"}, {"y"});
    else
      b.node("Sub", {"x", "sorted"}, {"y"});
    Runner made;
    if (isOutput)
      EXPECT_THAT(made.run(b), ElementsAre(2, 3, 4, 5, 0, 1));
    else
      EXPECT_THAT(made.run(b), ElementsAre(-2, -2, -2, -2, 4, 4));
    EXPECT_EQ(made.count("topk"), 1u);
  }
}

/// Another order at the end is not the inverse.
TEST(SampleOrder, TheSameOrderTwiceIsNoInverse) {
  ModelBuilder b = withSortedSamples();
  b.node("Gather", {"sorted", "order"}, {"y"});
  Runner made;
  EXPECT_THAT(made.run(b), ElementsAre(4, 5, 0, 1, 2, 3));
  EXPECT_EQ(made.count("topk"), 1u);
}

} // namespace
