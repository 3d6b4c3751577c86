//===- random_test.cpp - Nodes that draw random numbers ----------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::Each;
using ::testing::HasSubstr;

namespace {

struct Moments {
  double mean = 0, variance = 0;
};

Moments momentsOf(const std::vector<double> &values) {
  Moments m;
  for (double value : values)
    m.mean += value / double(values.size());
  for (double value : values)
    m.variance += (value - m.mean) * (value - m.mean) / double(values.size());
  return m;
}

/// Returns what a node of `type` draws for x[2, 2000]; attributes are floats.
std::vector<double> draw(const std::string &type,
                         const std::vector<std::pair<std::string, float>> &attributes,
                         const std::string &name = "noise") {
  ModelBuilder b(22);
  b.input("x", {"batch", "2000"});
  onnx::NodeProto &node = b.node(type, {"x"}, {"y"}, name);
  for (const auto &[key, value] : attributes)
    floatAttr(node, key, value);
  b.output("y");
  ModelRunner runner;
  runner.inputs["x"] = std::vector<double>(4000, 0.25);
  return runner.run(b);
}

TEST(RandomNodes, UniformIsWithinItsBounds) {
  std::vector<double> values = draw("RandomUniformLike", {{"low", -1.0F}, {"high", 3.0F}});
  for (double value : values) {
    EXPECT_GE(value, -1);
    EXPECT_LE(value, 3);
  }
  Moments m = momentsOf(values);
  EXPECT_NEAR(m.mean, 1, 4 * std::sqrt(16.0 / 12 / 4000));
  EXPECT_NEAR(m.variance, 16.0 / 12, 0.1);
  EXPECT_EQ(values, draw("RandomUniformLike", {{"low", -1.0F}, {"high", 3.0F}}));
  EXPECT_NE(values, draw("RandomUniformLike", {{"low", -1.0F}, {"high", 3.0F}}, "other"));
}

TEST(RandomNodes, NormalHasItsMeanAndScale) {
  Moments m = momentsOf(draw("RandomNormalLike", {{"mean", 2.0F}, {"scale", 0.5F}}));
  EXPECT_NEAR(m.mean, 2, 4 * 0.5 / std::sqrt(4000));
  EXPECT_NEAR(m.variance, 0.25, 4 * 0.25 * std::sqrt(2.0 / 4000));
}

TEST(RandomNodes, BernoulliHasItsProbability) {
  std::vector<double> values = draw("Bernoulli", {});
  for (double value : values)
    EXPECT_TRUE(value == 0 || value == 1) << value;
  EXPECT_NEAR(momentsOf(values).mean, 0.25, 4 * std::sqrt(0.25 * 0.75 / 4000));
}

TEST(RandomNodes, BernoulliOfZeroAndOneIsCertain) {
  ModelBuilder b(22);
  b.input("x", {"batch", "3"});
  ModelBuilder::attr(b.node("Bernoulli", {"x"}, {"y"}), "dtype", int64_t(onnx::TensorProto::INT32));
  b.output("y");
  ModelRunner runner;
  runner.inputs["x"] = {0, 1, 0, 1, 1, 0};
  EXPECT_THAT(runner.run(b), ::testing::ElementsAre(0, 1, 0, 1, 1, 0));
}

/// A tensor without the batch, and one without dims.
TEST(RandomNodes, OfAGivenShape) {
  for (const std::vector<int64_t> &shape : {std::vector<int64_t>{3}, std::vector<int64_t>{}}) {
    ModelBuilder b(22);
    b.input("x", {"batch", "3"});
    ModelBuilder::attr(b.node("RandomUniform", {}, {"u"}), "shape", shape);
    ModelBuilder::attr(b.node("RandomNormal", {}, {"z"}), "shape", shape);
    b.node("Add", {"u", "z"}, {"noise"});
    b.node("Add", {"x", "noise"}, {"y"});
    b.output("y");
    ModelRunner runner;
    runner.inputs["x"] = std::vector<double>(6, 0);
    std::vector<double> values = runner.run(b);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(values[size_t(i)], values[size_t(i) + 3]);
    EXPECT_EQ(values[0] == values[1], shape.empty());
    EXPECT_EQ(runner.count("random_uniform"), 3U);
  }
}

TEST(RandomNodes, OfIntegersAreErrors) {
  ModelBuilder b(22);
  b.input("x", {"batch", "3"});
  ModelBuilder::attr(b.node("RandomNormalLike", {"x"}, {"y"}, "noise"), "dtype",
                     int64_t(onnx::TensorProto::INT64));
  b.output("y");
  EXPECT_THAT(importError(b.bytes()),
              HasSubstr("node 'noise' (RandomNormalLike): draws numbers of i64; expected a float"));
}

} // namespace
