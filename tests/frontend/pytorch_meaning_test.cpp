//===- pytorch_meaning_test.cpp - Nodes as PyTorch means them --------------===//
//
// Numbers and slopes that ONNX leaves open, or that exporters write otherwise.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

namespace {

std::vector<double> run(const ModelBuilder &b, std::vector<double> x = {}) {
  ModelRunner runner;
  runner.options.batch = 1;
  if (!x.empty())
    runner.inputs = {{"x", std::move(x)}};
  return runner.run(b);
}

/// Several updates with one number, as zeros.scatter(1, tags, 1.0) of repeated tags.
TEST(PyTorchMeaning, ScatterElementsOfOneNumberReplacesOnce) {
  for (bool isZero : {true, false}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "3"});
    b.output("y");
    b.ints("row", {1, 3}, {2, 0, 2});
    b.floats("update", {}, {5});
    b.floats("zeros", {}, {0});
    b.ints("two", {1}, {3});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"batch_size"}), "end", int64_t(1));
    ModelBuilder::attr(b.node("Concat", {"batch_size", "two"}, {"shape"}), "axis", int64_t(0));
    b.node("Expand", {"row", "shape"}, {"i"});
    b.node("Expand", {"update", "shape"}, {"u"});
    b.node("Expand", {"zeros", "shape"}, {"z"});
    onnx::NodeProto &scatter =
        b.node("ScatterElements", {isZero ? "z" : "x", "i", "u"}, {"scattered"});
    ModelBuilder::attr(scatter, "axis", int64_t(1));
    b.node("Add", {"scattered", "x"}, {"y"});
    EXPECT_THAT(run(b), isZero ? ElementsAre(5, 1, 7) : ElementsAre(5, 2, 7));
  }
}

/// x[arange(batch), index] = 10 and += 10, with an index of each sample.
TEST(PyTorchMeaning, AnElementOfEachSampleIsWritten) {
  for (bool adds : {false, true}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "3"});
    b.output("y");
    b.ints("last", {1}, {1});
    b.ints("first", {}, {0});
    b.ints("zero", {}, {0});
    b.ints("one", {}, {1});
    b.floats("ten", {}, {10});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"sizes"}), "end", int64_t(1));
    b.node("Gather", {"sizes", "first"}, {"size"});
    b.node("Range", {"zero", "size", "one"}, {"samples"});
    onnx::NodeProto &least = b.node("ArgMin", {"x"}, {"index"});
    ModelBuilder::attr(least, "axis", int64_t(1));
    ModelBuilder::attr(least, "keepdims", int64_t(0));
    b.node("Unsqueeze", {"samples", "last"}, {"column"});
    b.node("Unsqueeze", {"index", "last"}, {"chosen"});
    ModelBuilder::attr(b.node("Concat", {"column", "chosen"}, {"i"}), "axis", int64_t(1));
    b.node("Expand", {"ten", "sizes"}, {"u"});
    onnx::NodeProto &scatter = b.node("ScatterND", {"x", "i", "u"}, {"y"});
    ModelBuilder::attr(scatter, "reduction", std::string(adds ? "add" : "none"));
    ModelRunner runner;
    runner.inputs = {{"x", {5, 1, 2, 3, 4, 0}}};
    EXPECT_THAT(runner.run(b),
                adds ? ElementsAre(5, 11, 2, 3, 4, 10) : ElementsAre(5, 10, 2, 3, 4, 10));
  }
}

/// torch's older exporter writes sums of booleans, which count.
TEST(PyTorchMeaning, CumSumOfBooleansCounts) {
  ModelBuilder b(18);
  b.input("x", {"batch", "4"});
  b.output("y");
  b.floats("one", {}, {1});
  b.ints("axis", {}, {1});
  b.node("Equal", {"x", "one"}, {"isOne"});
  b.node("Not", {"isOne"}, {"isOther"});
  b.node("CumSum", {"isOther", "axis"}, {"count"});
  ModelBuilder::attr(b.node("Cast", {"count"}, {"y"}), "to", int64_t(1));
  EXPECT_THAT(run(b), ElementsAre(1, 1, 2, 3));
}

/// log(exp(a) + exp(b)) of large numbers, as the newer exporter writes logaddexp.
TEST(PyTorchMeaning, LogOfTwoExponentialsIsFinite) {
  ModelBuilder b(18);
  b.input("x", {"batch", "3"});
  b.output("y");
  b.floats("two", {}, {2});
  b.node("Mul", {"x", "two"}, {"twice"});
  b.node("Exp", {"x"}, {"left"});
  b.node("Exp", {"twice"}, {"right"});
  b.node("Add", {"left", "right"}, {"sum"});
  b.node("Log", {"sum"}, {"y"});
  EXPECT_THAT(run(b, {1000, -2000, 0}), ElementsAre(2000, -2000, DoubleNear(std::log(2), 1e-12)));
}

/// Distances by powers: pow(0, 1/3) has an infinite slope, and exporters mean a norm.
TEST(PyTorchMeaning, RootsHaveASlopeAtZero) {
  for (const auto &[exponent, op] : {std::pair(0.5f, "sqrt"), std::pair(0.25f, "pow")}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "3"});
    b.output("y");
    b.floats("root", {}, {exponent});
    b.node("Pow", {"x", "root"}, {"y"});
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs = {{"x", {0, 1, 16}}};
    EXPECT_THAT(runner.run(b), ElementsAre(0, 1, exponent == 0.5f ? 4 : 2));
    EXPECT_EQ(runner.count(op), 1u);
    EXPECT_EQ(runner.count("select"), exponent == 0.5f ? 0u : 2u);
  }
}

/// The bounds of clamp have the slope 1, and those of relu6 have 0.
TEST(PyTorchMeaning, BoundsOfRelu6) {
  for (bool isClamp : {false, true}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "3"});
    b.output("y");
    b.floats("low", {}, {0});
    b.floats("high", {}, {6});
    onnx::NodeProto &node = b.node("Clip", {"x", "low", "high"}, {"y"});
    onnx::StringStringEntryProto &entry = *node.add_metadata_props();
    entry.set_key("namespace");
    entry.set_value(isClamp ? ": model.Block/clamp: aten.clamp.default"
                            : ": model.Block/relu6: aten.relu6.default");
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs = {{"x", {-1, 5, 7}}};
    EXPECT_THAT(runner.run(b), ElementsAre(0, 5, 6));
    EXPECT_EQ(runner.count("select"), isClamp ? 0u : 2u);
    EXPECT_EQ(runner.count("maximum"), isClamp ? 1u : 0u);
  }
}

/// Under torch.autocast of CPUs a norm of bf16 keeps its weights in f32.
TEST(PyTorchMeaning, ANormOfBf16WithWeightsOfF32ComputesInF32) {
  ModelBuilder b(18);
  b.input("x", {"batch", "2"});
  b.output("y");
  b.floats("scale", {2}, {1.5f, 2});
  b.floats("shift", {2}, {0.25f, 0});
  ModelBuilder::attr(b.node("Cast", {"x"}, {"narrow"}), "to", int64_t(16));
  b.node("LayerNormalization", {"narrow", "scale", "shift"}, {"norm"});
  ModelBuilder::attr(b.node("Cast", {"norm"}, {"y"}), "to", int64_t(1));
  EXPECT_THAT(run(b, {-8, 8}), ElementsAre(DoubleNear(-1.25, 1e-3), DoubleNear(2, 1e-3)));
}

} // namespace
