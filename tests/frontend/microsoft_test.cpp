//===- microsoft_test.cpp - Fused ops against the ops they are made of -----===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;

namespace {

std::vector<float> weights(int64_t count, int64_t seed) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = float((i * 37 + seed * 11) % 19) / 16 - 0.55f;
  return values;
}

onnx::NodeProto &microsoft(ModelBuilder &b, const std::string &type,
                           const std::vector<std::string> &inputs,
                           const std::vector<std::string> &outputs) {
  onnx::NodeProto &node = b.node(type, inputs, outputs, "fused");
  node.set_domain("com.microsoft");
  return node;
}

/// x[batch, 3, 8] scaled to be of order one, and y.
ModelBuilder withSequence() {
  ModelBuilder b(23);
  b.input("raw", {"batch", "3", "8"});
  b.output("y");
  b.floats("small", {}, {0.05f});
  b.node("Mul", {"raw", "small"}, {"shifted"});
  b.node("Sin", {"shifted"}, {"x"});
  return b;
}

void project(ModelBuilder &b, const std::string &name, int64_t columns, int64_t seed) {
  b.floats(name + "_weight", {8, columns}, weights(8 * columns, seed));
  b.node("MatMul", {"x", name + "_weight"}, {name});
}

void expectEqual(const ModelBuilder &fused, const ModelBuilder &plain, unsigned output = 0) {
  ModelRunner runner, reference;
  std::vector<double> found = runner.run(fused, output), expected = reference.run(plain, output);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-9) << "element " << i;
  EXPECT_EQ(runner.shape, reference.shape);
}

TEST(Microsoft, Gelus) {
  for (const std::string type : {"Gelu", "FastGelu", "BiasGelu"}) {
    ModelBuilder fused = withSequence(), plain = withSequence();
    for (ModelBuilder *b : {&fused, &plain})
      b->floats("bias", {8}, weights(8, 1));
    if (type == "Gelu") {
      microsoft(fused, type, {"x"}, {"y"});
      plain.node("Identity", {"x"}, {"s"});
    } else {
      microsoft(fused, type, {"x", "bias"}, {"y"});
      plain.node("Add", {"x", "bias"}, {"s"});
    }
    ModelBuilder::attr(plain.node("Gelu", {"s"}, {"y"}), "approximate",
                       std::string(type == "FastGelu" ? "tanh" : "none"));
    expectEqual(fused, plain);
  }
  ModelBuilder fused = withSequence(), plain = withSequence();
  microsoft(fused, "QuickGelu", {"x"}, {"y"});
  plain.floats("alpha", {}, {1.702f});
  plain.node("Mul", {"x", "alpha"}, {"z"});
  plain.node("Sigmoid", {"z"}, {"g"});
  plain.node("Mul", {"x", "g"}, {"y"});
  ModelRunner runner, reference;
  std::vector<double> found = runner.run(fused), expected = reference.run(plain);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6);
}

TEST(Microsoft, SkipLayerNormalization) {
  for (bool isSimplified : {false, true})
    for (unsigned output : {0u, 1u}) {
      ModelBuilder fused = withSequence(), plain = withSequence();
      for (ModelBuilder *b : {&fused, &plain}) {
        b->output("sum");
        b->node("Cos", {"x"}, {"skip"});
        for (const char *name : {"scale", "shift", "bias"})
          b->floats(name, {8}, weights(8, name[1]));
      }
      onnx::NodeProto &node =
          isSimplified ? microsoft(fused, "SkipSimplifiedLayerNormalization",
                                   {"x", "skip", "scale", "bias"}, {"y", "", "", "sum"})
                       : microsoft(fused, "SkipLayerNormalization",
                                   {"x", "skip", "scale", "shift", "bias"}, {"y", "", "", "sum"});
      floatAttr(node, "epsilon", 1e-3f);
      plain.node("Add", {"x", "skip"}, {"s"});
      plain.node("Add", {"s", "bias"}, {"sum"});
      onnx::NodeProto &norm =
          isSimplified ? plain.node("RMSNormalization", {"sum", "scale"}, {"y"})
                       : plain.node("LayerNormalization", {"sum", "scale", "shift"}, {"y"});
      floatAttr(norm, "epsilon", 1e-3f);
      expectEqual(fused, plain, output);
    }
}

TEST(Microsoft, SimplifiedLayerNormalizationIsRmsNorm) {
  for (const std::string domain : {"", "com.microsoft"}) {
    ModelBuilder fused = withSequence(), plain = withSequence();
    for (ModelBuilder *b : {&fused, &plain})
      b->floats("scale", {8}, weights(8, 2));
    onnx::NodeProto &node = fused.node("SimplifiedLayerNormalization", {"x", "scale"}, {"y"});
    node.set_domain(domain);
    plain.node("RMSNormalization", {"x", "scale"}, {"y"});
    expectEqual(fused, plain);
  }
}

TEST(Microsoft, LayerNormalization) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  for (ModelBuilder *b : {&fused, &plain}) {
    b->floats("scale", {8}, weights(8, 2));
    b->floats("shift", {8}, weights(8, 3));
  }
  for (onnx::NodeProto *node :
       {&microsoft(fused, "LayerNormalization", {"x", "scale", "shift"}, {"y"}),
        &plain.node("LayerNormalization", {"x", "scale", "shift"}, {"y"})})
    floatAttr(*node, "epsilon", 1e-3f);
  expectEqual(fused, plain);
}

TEST(Microsoft, FusedMatMul) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  onnx::NodeProto &node = microsoft(fused, "FusedMatMul", {"x", "x"}, {"y"});
  ModelBuilder::attr(node, "transB", int64_t(1));
  floatAttr(node, "alpha", 0.5f);
  ModelBuilder::attr(plain.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{0, 2, 1});
  plain.node("MatMul", {"x", "t"}, {"p"});
  plain.floats("half", {}, {0.5f});
  plain.node("Mul", {"p", "half"}, {"y"});
  expectEqual(fused, plain);
}

/// The standard op on q, k, v of rank 3 and a mask [b, 1, 1, t] if there is one.
void standardAttention(ModelBuilder &b, int64_t heads, int64_t keyHeads, bool isCausal,
                       const std::string &mask = "") {
  onnx::NodeProto &node = b.node("Attention", {"q", "k", "v", mask}, {"y"});
  ModelBuilder::attr(node, "q_num_heads", heads);
  ModelBuilder::attr(node, "kv_num_heads", keyHeads);
  ModelBuilder::attr(node, "is_causal", int64_t(isCausal));
}

TEST(Microsoft, Attention) {
  for (bool isCausal : {false, true}) {
    ModelBuilder fused = withSequence(), plain = withSequence();
    for (ModelBuilder *b : {&fused, &plain}) {
      b->floats("weight", {8, 24}, weights(192, 3));
      b->floats("bias", {24}, weights(24, 4));
      b->input("mask", {"batch", "3"}, /*isFloat=*/false);
    }
    onnx::NodeProto &node = microsoft(fused, "Attention", {"x", "weight", "bias", "mask"}, {"y"});
    ModelBuilder::attr(node, "num_heads", int64_t(2));
    ModelBuilder::attr(node, "unidirectional", int64_t(isCausal));
    plain.node("MatMul", {"x", "weight"}, {"m"});
    plain.node("Add", {"m", "bias"}, {"p"});
    ModelBuilder::attr(plain.node("Split", {"p"}, {"q", "k", "v"}), "axis", int64_t(2));
    plain.ints("zero", {}, {0});
    plain.ints("axes", {2}, {1, 2});
    plain.node("Greater", {"mask", "zero"}, {"read"});
    plain.node("Unsqueeze", {"read", "axes"}, {"read4"});
    standardAttention(plain, 2, 2, isCausal, "read4");
    // The mask of sample 0 is 0, 1, 2: its first key is hidden, so a causal query 0 reads no key.
    expectEqual(fused, plain);
  }
}

TEST(Microsoft, AttentionMaskAsLengths) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  for (ModelBuilder *b : {&fused, &plain}) {
    b->floats("weight", {8, 24}, weights(192, 3));
    b->input("lengths", {"batch"}, /*isFloat=*/false);
    b->ints("one", {}, {1});
    b->node("Add", {"lengths", "one"}, {"more"});
  }
  ModelBuilder::attr(microsoft(fused, "Attention", {"x", "weight", "", "more"}, {"y"}), "num_heads",
                     int64_t(2));
  plain.node("MatMul", {"x", "weight"}, {"p"});
  ModelBuilder::attr(plain.node("Split", {"p"}, {"q", "k", "v"}), "axis", int64_t(2));
  plain.ints("axes", {3}, {1, 2, 3});
  plain.ints("index", {3}, {0, 1, 2});
  plain.node("Unsqueeze", {"more", "axes"}, {"more4"});
  plain.node("Less", {"index", "more4"}, {"read"});
  standardAttention(plain, 2, 2, false, "read");
  expectEqual(fused, plain);
}

TEST(Microsoft, MultiHeadAttentionWithBiases) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  for (ModelBuilder *b : {&fused, &plain}) {
    project(*b, b == &fused ? "q" : "q0", 8, 5);
    project(*b, b == &fused ? "k" : "k0", 8, 6);
    project(*b, b == &fused ? "v" : "v0", 4, 7);
  }
  std::vector<float> bias = weights(20, 8);
  fused.floats("bias", {20}, bias);
  ModelBuilder::attr(microsoft(fused, "MultiHeadAttention", {"q", "k", "v", "bias"}, {"y"}),
                     "num_heads", int64_t(4));
  plain.floats("bq", {8}, {bias.begin(), bias.begin() + 8});
  plain.floats("bk", {8}, {bias.begin() + 8, bias.begin() + 16});
  plain.floats("bv", {4}, {bias.begin() + 16, bias.end()});
  for (const std::string name : {"q", "k", "v"})
    plain.node("Add", {name + "0", "b" + name}, {name});
  standardAttention(plain, 4, 4, false);
  expectEqual(fused, plain);
}

/// Packed as [b, s, heads, 3, width].
TEST(Microsoft, MultiHeadAttentionPacked) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  for (ModelBuilder *b : {&fused, &plain}) {
    b->floats("weight", {8, 24}, weights(192, 9));
    b->node("MatMul", {"x", "weight"}, {"p"});
    b->ints("packed", {5}, {-1, 3, 2, 3, 4});
    b->node("Reshape", {"p", "packed"}, {"p5"});
  }
  ModelBuilder::attr(microsoft(fused, "MultiHeadAttention", {"p5"}, {"y"}), "num_heads",
                     int64_t(2));
  onnx::NodeProto &split = plain.node("Split", {"p5"}, {"q5", "k5", "v5"});
  ModelBuilder::attr(split, "axis", int64_t(3));
  ModelBuilder::attr(split, "num_outputs", int64_t(3));
  plain.ints("flat", {3}, {-1, 3, 8});
  for (const std::string name : {"q", "k", "v"})
    plain.node("Reshape", {name + "5", "flat"}, {name});
  standardAttention(plain, 2, 2, false);
  expectEqual(fused, plain);
}

std::vector<float> angles(bool isSine, int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double angle = double(i) / double(j + 1);
      values.push_back(float(isSine ? std::sin(angle) : std::cos(angle)));
    }
  return values;
}

/// Grouped queries with rotary embedding: the standard ops, one by one.
TEST(Microsoft, GroupQueryAttention) {
  for (bool isPacked : {false, true}) {
    ModelBuilder fused = withSequence(), plain = withSequence();
    for (ModelBuilder *b : {&fused, &plain}) {
      std::string suffix = b == &plain ? "0" : "";
      project(*b, "q" + suffix, 16, 5);
      project(*b, "k" + suffix, 8, 6);
      project(*b, "v", 8, 7);
      b->floats("cos", {5, 2}, angles(false, 5, 2));
      b->floats("sin", {5, 2}, angles(true, 5, 2));
    }
    std::vector<std::string> inputs{"q", "k", "v", "", "", "", "", "cos", "sin"};
    if (isPacked) {
      ModelBuilder::attr(fused.node("Concat", {"q", "k", "v"}, {"qkv"}), "axis", int64_t(2));
      inputs[0] = "qkv";
      inputs[1] = inputs[2] = "";
    }
    onnx::NodeProto &node = microsoft(fused, "GroupQueryAttention", inputs, {"y"});
    ModelBuilder::attr(node, "num_heads", int64_t(4));
    ModelBuilder::attr(node, "kv_num_heads", int64_t(2));
    ModelBuilder::attr(node, "do_rotary", int64_t(1));
    plain.ints("starts", {1}, {0});
    plain.ints("ends", {1}, {3});
    for (const std::string table : {"cos", "sin"})
      plain.node("Slice", {table, "starts", "ends"}, {table + "3"});
    for (auto [name, heads] : {std::pair("q", 4), std::pair("k", 2)}) {
      onnx::NodeProto &rotary =
          plain.node("RotaryEmbedding", {std::string(name) + "0", "cos3", "sin3"}, {name});
      ModelBuilder::attr(rotary, "num_heads", int64_t(heads));
    }
    standardAttention(plain, 4, 2, true);
    expectEqual(fused, plain);
    // Tables of angles are no parameters.
    ModelRunner runner;
    runner.run(fused);
    unsigned states = 0;
    for (const frontend::ParameterSource &source : runner.model->parameters)
      states += source.isState;
    EXPECT_EQ(states, 2u);
    EXPECT_EQ(runner.count("rotary"), 2u);
  }
}

TEST(Microsoft, GroupQueryAttentionReadsLengths) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  for (ModelBuilder *b : {&fused, &plain}) {
    b->input("last", {"batch"}, false);
    project(*b, "q", 16, 5);
    project(*b, "k", 8, 6);
    project(*b, "v", 8, 7);
  }
  onnx::NodeProto &node =
      microsoft(fused, "GroupQueryAttention", {"q", "k", "v", "", "", "last"}, {"y"});
  ModelBuilder::attr(node, "num_heads", int64_t(4));
  ModelBuilder::attr(node, "kv_num_heads", int64_t(2));
  plain.ints("positions", {3}, {0, 1, 2});
  plain.ints("axes", {3}, {1, 2, 3});
  plain.node("Unsqueeze", {"last", "axes"}, {"last4"});
  plain.node("LessOrEqual", {"positions", "last4"}, {"mask"});
  onnx::NodeProto &standard = plain.node("Attention", {"q", "k", "v", "mask"}, {"y"});
  ModelBuilder::attr(standard, "q_num_heads", int64_t(4));
  ModelBuilder::attr(standard, "kv_num_heads", int64_t(2));
  ModelBuilder::attr(standard, "is_causal", int64_t(1));
  ModelRunner runner, reference;
  runner.inputs["last"] = reference.inputs["last"] = {1, 2};
  EXPECT_EQ(runner.run(fused), reference.run(plain));
  runner.inputs["last"] = {2, 2};
  EXPECT_NE(runner.run(fused), reference.run(plain));
}

/// Unread lengths are reported.
TEST(Microsoft, GroupQueryAttentionWithACacheSaysWhatItDoesNotRead) {
  for (bool hasLengths : {false, true}) {
    ModelBuilder b = withSequence();
    b.input("last", {"batch"}, false);
    for (const char *cache : {"past_key_values.0.key", "past_key_values.0.value"})
      b.input(cache, {"batch", "2", "past", "4"});
    project(b, "q", 16, 5);
    project(b, "k", 8, 6);
    project(b, "v", 8, 7);
    onnx::NodeProto &node = microsoft(b, "GroupQueryAttention",
                                      {"q", "k", "v", "past_key_values.0.key",
                                       "past_key_values.0.value", hasLengths ? "last" : ""},
                                      {"y"});
    ModelBuilder::attr(node, "num_heads", int64_t(4));
    ModelBuilder::attr(node, "kv_num_heads", int64_t(2));
    ModelRunner runner;
    runner.run(b);
    bool isSaid = false;
    for (const std::string &warning : runner.model->warnings)
      isSaid |= warning.find("'last' is not read") != std::string::npos;
    EXPECT_EQ(isSaid, hasLengths);
  }
}

TEST(Microsoft, RotaryEmbeddingByPositionIds) {
  ModelBuilder fused = withSequence(), plain = withSequence();
  for (ModelBuilder *b : {&fused, &plain}) {
    b->floats("cos", {6, 2}, angles(false, 6, 2));
    b->floats("sin", {6, 2}, angles(true, 6, 2));
    b->input("positions", {"batch", "3"}, /*isFloat=*/false);
  }
  ModelBuilder::attr(microsoft(fused, "RotaryEmbedding", {"x", "positions", "cos", "sin"}, {"y"}),
                     "num_heads", int64_t(2));
  ModelBuilder::attr(plain.node("RotaryEmbedding", {"x", "cos", "sin", "positions"}, {"y"}),
                     "num_heads", int64_t(2));
  expectEqual(fused, plain);
}

TEST(Microsoft, MistakesAreNamed) {
  ModelBuilder b = withSequence();
  microsoft(b, "GroupQueryAttention", {"x", "x", "x"}, {"y"});
  EXPECT_THAT(importError(b.bytes()),
              HasSubstr("node 'fused' (GroupQueryAttention): needs num_heads and kv_num_heads"));
  ModelBuilder u = withSequence();
  microsoft(u, "Unheard", {"x"}, {"y"});
  EXPECT_THAT(importError(u.bytes()), HasSubstr("com.microsoft.Unheard: fused"));
}

} // namespace
