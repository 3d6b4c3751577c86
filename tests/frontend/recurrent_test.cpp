//===- recurrent_test.cpp - LSTM and GRU as one op and step by step ---------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;

namespace {

struct Layer {
  const char *type;
  int64_t gates;
  const char *direction;
  /// linear_before_reset of a GRU; layout.
  int64_t resetAfter, layout;
  /// Has biases and first states.
  bool isFull;
};
void PrintTo(const Layer &layer, std::ostream *stream) {
  *stream << layer.type << " " << layer.direction << " " << layer.resetAfter << layer.layout
          << layer.isFull;
}

class RecurrentLayer : public ::testing::TestWithParam<Layer> {
protected:
  /// A layer of two units over three steps. With a `clip` without effect it is unrolled.
  ModelBuilder build(const std::string &output, bool isUnrolled) {
    const Layer &layer = GetParam();
    int64_t directions = std::string(layer.direction) == "bidirectional" ? 2 : 1;
    int64_t rows = layer.gates * 2;
    ModelBuilder b(22);
    b.input("samples", {"batch", "3", "2"});
    ModelBuilder::attr(b.node("Transpose", {"samples"}, {"x"}), "perm",
                       layer.layout ? std::vector<int64_t>{0, 1, 2}
                                    : std::vector<int64_t>{1, 0, 2});
    auto weight = [&](const std::string &name, std::vector<int64_t> dims) {
      std::vector<float> values(kernels::numElements(dims));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::sin(float(3 * i + name.size() + name[0]));
      b.floats(name, dims, values);
      return name;
    };
    std::vector<std::string> inputs{"x", weight("w", {directions, rows, 2}),
                                    weight("r", {directions, rows, 2})};
    bool hasCell = layer.gates == 4;
    if (layer.isFull) {
      inputs.push_back(weight("bias", {directions, 2 * rows}));
      inputs.push_back("");
      for (const char *state : {"h", "c"})
        if (state[0] == 'h' || hasCell) {
          // One first state for all samples.
          std::string row = weight(std::string(state) + "_row", {1, directions, 2});
          b.node("Shape", {"x"}, {std::string(state) + "_shape"});
          b.ints(std::string(state) + "_dim", {1}, {layer.layout ? 0 : 1});
          b.node("Gather", {std::string(state) + "_shape", std::string(state) + "_dim"},
                 {std::string(state) + "_batch"});
          b.ints(std::string(state) + "_rest", {2}, {directions, 2});
          ModelBuilder::attr(b.node("Concat",
                                    {std::string(state) + "_batch", std::string(state) + "_rest"},
                                    {std::string(state) + "_all"}),
                             "axis", 0);
          b.node("Expand", {row, std::string(state) + "_all"}, {std::string(state) + "_batchwise"});
          onnx::NodeProto &transpose =
              b.node("Transpose", {std::string(state) + "_batchwise"}, {std::string(state)});
          ModelBuilder::attr(transpose, "perm",
                             layer.layout ? std::vector<int64_t>{0, 1, 2}
                                          : std::vector<int64_t>{1, 0, 2});
          inputs.push_back(state);
        }
    }
    std::vector<std::string> outputs{"Y", "Y_h"};
    if (hasCell)
      outputs.push_back("Y_c");
    onnx::NodeProto &node = b.node(layer.type, inputs, outputs);
    ModelBuilder::attr(node, "hidden_size", int64_t(2));
    ModelBuilder::attr(node, "layout", layer.layout);
    ModelBuilder::attr(node, "direction", std::string(layer.direction));
    if (!hasCell)
      ModelBuilder::attr(node, "linear_before_reset", layer.resetAfter);
    if (isUnrolled)
      floatAttr(node, "clip", 1e6F);
    b.output(output);
    return b;
  }
};

TEST_P(RecurrentLayer, IsItsUnrolledForm) {
  for (const char *output : {"Y", "Y_h", "Y_c"}) {
    if (std::string(output) == "Y_c" && GetParam().gates == 3)
      continue;
    ModelRunner whole, unrolled;
    std::vector<double> actual = whole.run(build(output, false));
    std::vector<double> expected = unrolled.run(build(output, true));
    bool isBoth = std::string(GetParam().direction) == "bidirectional";
    EXPECT_EQ(whole.count(GetParam().gates == 4 ? "lstm" : "gru"), isBoth ? 2U : 1U);
    EXPECT_EQ(whole.count("tanh"), 0U);
    EXPECT_GT(unrolled.count("tanh"), 0U);
    EXPECT_EQ(whole.shape, unrolled.shape);
    EXPECT_THAT(actual, ::testing::Pointwise(::testing::DoubleNear(1e-12), expected)) << output;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecurrentLayer,
                         ::testing::Values(Layer{"LSTM", 4, "forward", 0, 0, false},
                                           Layer{"LSTM", 4, "reverse", 0, 1, true},
                                           Layer{"LSTM", 4, "bidirectional", 0, 0, true},
                                           Layer{"GRU", 3, "forward", 0, 0, true},
                                           Layer{"GRU", 3, "reverse", 1, 0, false},
                                           Layer{"GRU", 3, "bidirectional", 1, 1, true},
                                           Layer{"GRU", 3, "bidirectional", 0, 0, true}));

} // namespace
