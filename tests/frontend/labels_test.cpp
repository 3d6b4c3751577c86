//===- labels_test.cpp - Labels of losses ----------------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

namespace {

/// A loss of scores that a table gives for `ids`, with the labels ids[:, 1:] or another input.
/// Labels of -100 do not count, as in every cross entropy of PyTorch.
ModelBuilder nextToken(bool ofIds) {
  ModelBuilder b(18);
  b.input("ids", {"batch", "3"}, /*isFloat=*/false);
  b.output("y");
  b.floats("table", {2, 2}, {0, 1, 2, 0});
  for (auto [name, value] :
       {std::pair("zero", 0), std::pair("one", 1), std::pair("two", 2), std::pair("three", 3)})
    b.ints(name, {1}, {value});
  b.node("Slice", {"ids", "zero", "two", "one"}, {"before"});
  b.node("Gather", {"table", "before"}, {"rows"});
  ModelBuilder::attr(b.node("Transpose", {"rows"}, {"scores"}), "perm",
                     std::vector<int64_t>{0, 2, 1});
  if (ofIds)
    b.node("Slice", {"ids", "one", "three", "one"}, {"labels"});
  else
    b.input("labels", {"batch", "2"}, /*isFloat=*/false);
  ModelBuilder::attr(b.node("SoftmaxCrossEntropyLoss", {"scores", "labels"}, {"y"}), "ignore_index",
                     int64_t(-100));
  return b;
}

/// Numbers of rows of a table are not negative: their loss is a mean with a known count, of which
/// micro-batches have shares, also beside other losses.
TEST(Labels, TokensThatAreEmbeddedAllCount) {
  auto loss = [](double own, double other) { return std::log(1 + std::exp(other - own)); };
  for (bool ofIds : {true, false}) {
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs = {{"ids", {0, 1, 1}}, {"labels", {1, 1}}};
    EXPECT_THAT(runner.run(nextToken(ofIds)),
                ElementsAre(DoubleNear((loss(1, 0) + loss(0, 2)) / 2, 1e-12)));
    EXPECT_EQ(runner.count("compare"), ofIds ? 0u : 1u);
  }
}

} // namespace
