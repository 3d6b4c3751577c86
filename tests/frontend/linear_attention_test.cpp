//===- linear_attention_test.cpp - Attention by a state; attention by graphs --===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;
using ::testing::Pointwise;

namespace {

MATCHER(IsNear, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-5 * (1 + std::abs(std::get<1>(arg)));
}

std::vector<double> wave(size_t count, double phase) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(std::sin(phase + double(i) * 0.7));
  return values;
}

/// One sample and head, three tokens, dk = 2 and dv = 3: the recurrence by hand.
std::vector<double> expectedOf(const std::string &rule, const std::vector<double> &q,
                               const std::vector<double> &k, const std::vector<double> &v,
                               const std::vector<double> &g, const std::vector<double> &beta) {
  double state[2][3] = {};
  std::vector<double> result;
  for (size_t t = 0; t < 3; ++t) {
    if (rule.rfind("gated", 0) == 0)
      for (auto &row : state)
        for (double &s : row)
          s *= std::exp(g[t]);
    double added[3];
    for (size_t j = 0; j < 3; ++j) {
      added[j] = v[3 * t + j];
      if (rule.find("delta") != std::string::npos)
        added[j] = beta[t] * (added[j] - state[0][j] * k[2 * t] - state[1][j] * k[2 * t + 1]);
    }
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 3; ++j)
        state[i][j] += k[2 * t + i] * added[j];
    for (size_t j = 0; j < 3; ++j)
      result.push_back((q[2 * t] * state[0][j] + q[2 * t + 1] * state[1][j]) / std::sqrt(2.0));
  }
  return result;
}

TEST(LinearAttention, EveryRuleIsItsRecurrence) {
  for (const char *rule : {"linear", "gated", "delta", "gated_delta"}) {
    ModelBuilder b(27);
    b.input("q", {"batch", "3", "2"});
    b.input("k", {"batch", "3", "2"});
    b.input("v", {"batch", "3", "3"});
    b.input("g", {"batch", "3", "1"});
    b.input("beta", {"batch", "3", "1"});
    bool isGated = std::string(rule).rfind("gated", 0) == 0;
    bool isDelta = std::string(rule).find("delta") != std::string::npos;
    onnx::NodeProto &node =
        b.node("LinearAttention", {"q", "k", "v", "", isGated ? "g" : "", isDelta ? "beta" : ""},
               {"y"}, "state");
    ModelBuilder::attr(node, "q_num_heads", int64_t(1));
    ModelBuilder::attr(node, "kv_num_heads", int64_t(1));
    ModelBuilder::attr(node, "update_rule", std::string(rule));
    b.output("y");
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs = {{"q", wave(6, 0)},
                     {"k", wave(6, 1)},
                     {"v", wave(9, 2)},
                     {"g", {-0.5, -0.1, -1}},
                     {"beta", {0.3, 0.9, 0.5}}};
    EXPECT_THAT(runner.run(b),
                Pointwise(IsNear(), expectedOf(rule, wave(6, 0), wave(6, 1), wave(9, 2),
                                               runner.inputs["g"], runner.inputs["beta"])))
        << rule;
  }
}

TEST(LinearAttention, RulesWithoutTheirOperandsAreErrors) {
  ModelBuilder b(27);
  b.input("q", {"batch", "3", "2"});
  onnx::NodeProto &node = b.node("LinearAttention", {"q", "q", "q"}, {"y"}, "state");
  ModelBuilder::attr(node, "q_num_heads", int64_t(1));
  ModelBuilder::attr(node, "kv_num_heads", int64_t(1));
  b.output("y");
  EXPECT_THAT(
      importError(b.bytes()),
      HasSubstr("node 'state' (LinearAttention): update rule 'gated_delta' lacks its decay"));
}

/// Twice the scores is twice the scale.
TEST(FlexAttention, ChangesScores) {
  auto run = [](bool isChanged) {
    ModelBuilder b(26);
    b.input("q", {"batch", "2", "3", "4"});
    b.input("k", {"batch", "1", "5", "4"});
    b.floats("two", {}, {2});
    onnx::NodeProto &node = b.node("FlexAttention", {"q", "k", "k"}, {"y"}, "flex");
    node.set_domain("ai.onnx.preview");
    onnx::OperatorSetIdProto &set = *b.proto.add_opset_import();
    set.set_domain("ai.onnx.preview");
    set.set_version(1);
    floatAttr(node, "scale", isChanged ? 0.25F : 0.5F);
    if (isChanged)
      graphAttr(node, "score_mod", {"s"}, {"t"}, {makeNode("Mul", {"s", "two"}, {"t"})});
    b.output("y");
    ModelRunner runner;
    runner.inputs = {{"q", wave(48, 0)}, {"k", wave(40, 1)}};
    return runner.run(b);
  };
  EXPECT_THAT(run(true), Pointwise(IsNear(), run(false)));
}

TEST(FlexAttention, GraphsThatChangeTheShapeAreErrors) {
  ModelBuilder b(26);
  b.input("q", {"batch", "2", "3", "4"});
  onnx::NodeProto &node = b.node("FlexAttention", {"q", "q", "q"}, {"y"}, "flex");
  node.set_domain("ai.onnx.preview");
  onnx::OperatorSetIdProto &set = *b.proto.add_opset_import();
  set.set_domain("ai.onnx.preview");
  set.set_version(1);
  graphAttr(node, "prob_mod", {"p"}, {"r"}, {makeNode("Flatten", {"p"}, {"r"})});
  b.output("y");
  EXPECT_THAT(importError(b.bytes()), HasSubstr("graph 'prob_mod' does not keep the shape"));
}

} // namespace
