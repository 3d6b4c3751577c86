//===- bindings_test.cpp - Fixed sizes, caches, positions ------------------===//

#include "tests/frontend/ModelRunner.h"

#include "llvm/Support/raw_ostream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// x[1, 2, 6] (or of batch 2), reshaped with the batch as a number.
ModelBuilder fixedModel(const std::string &batch, const std::vector<int64_t> &target,
                        const std::vector<int64_t> &permutation) {
  ModelBuilder b;
  b.input("x", {batch, "2", "6"});
  b.output("y");
  b.ints("target", {int64_t(target.size())}, target);
  b.node("Reshape", {"x", "target"}, {"r"}, "reshape");
  ModelBuilder::attr(b.node("Transpose", {"r"}, {"y"}), "perm", permutation);
  return b;
}

/// A file exported at one batch gives, at another batch, the results of its samples one by one.
TEST(FixedBatch, ReshapesAreRebatched) {
  struct Case {
    std::string exported;
    std::vector<int64_t> target, permutation;
    kernels::Shape shape;
  };
  for (const Case &c :
       {Case{"1", {1, 2, 2, 3}, {0, 2, 1, 3}, {3, 2, 2, 3}},
        Case{"1", {1, -1, 3}, {0, 2, 1}, {3, 3, 4}}, Case{"2", {2, 4, 3}, {0, 2, 1}, {3, 3, 4}},
        Case{"2", {4, 6}, {0, 1}, {6, 6}}, Case{"1", {-1, 6}, {0, 1}, {6, 6}}}) {
    ModelRunner runner;
    runner.options.batch = 3;
    std::vector<double> all = runner.run(fixedModel(c.exported, c.target, c.permutation));
    EXPECT_EQ(runner.shape, c.shape);
    for (int64_t sample = 0; sample < 3; ++sample) {
      ModelRunner one;
      one.options.batch = 1;
      for (int64_t i = 0; i < 12; ++i)
        one.inputs["x"].push_back(double(12 * sample + i));
      std::vector<double> expected = one.run(fixedModel(c.exported, c.target, c.permutation));
      EXPECT_EQ(std::vector<double>(all.begin() + 12 * sample, all.begin() + 12 * (sample + 1)),
                expected);
    }
  }
}

/// TorchScript's `x[:, 1, :2] = u` for a symbolic batch, of an example of 2 samples: updates and
/// the coordinates of every place have the 2 as a number.
TEST(FixedBatch, SlicesAreAssignedInEverySample) {
  auto assigned = [](std::vector<int64_t> samples) {
    ModelBuilder b;
    b.input("x", {"batch", "3", "4"});
    b.input("u", {"batch", "2"});
    b.output("y");
    b.ints("target", {3}, {2, 1, 2});
    b.ints("samples", {2, 1, 1, 1}, samples);
    b.ints("row", {1}, {1});
    b.ints("columns", {2, 1}, {0, 1});
    b.ints("shape", {4}, {2, 1, 2, 1});
    for (const char *name : {"samples", "row", "columns"})
      b.node("Expand", {name, "shape"}, {std::string(name) + "_everywhere"});
    ModelBuilder::attr(b.node("Concat",
                              {"samples_everywhere", "row_everywhere", "columns_everywhere"},
                              {"places"}),
                       "axis", int64_t(-1));
    b.node("Reshape", {"u", "target"}, {"updates"}, "reshape");
    b.node("ScatterND", {"x", "places", "updates"}, {"y"}, "assign");
    return b;
  };
  ModelRunner runner;
  runner.options.batch = 3;
  std::vector<double> expected;
  for (int i = 0; i < 36; ++i)
    expected.push_back(i % 12 == 4 || i % 12 == 5 ? i / 12 * 2 + i % 12 - 4 : i);
  EXPECT_EQ(runner.run(assigned({0, 1})), expected);
  EXPECT_THAT(runner.model->warnings,
              Contains(HasSubstr("has the batch of the export as a number (2)")));
  EXPECT_EQ(runner.count("scatter_add"), 0u);
  // Samples in another order are no slice of every sample.
  EXPECT_THAT(importError(assigned({1, 0}).bytes()), HasSubstr("node 'assign' (ScatterND)"));
}

/// TorchScript folds `zeros_like(x)` to the batch of the example: here 2, for a batch of 3.
TEST(FixedBatch, AConstantThatRepeatsFitsAnyBatch) {
  auto modelOf = [](const std::vector<float> &table) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.output("y");
    b.floats("table", {2, 2}, table);
    b.node("Add", {"x", "table"}, {"sum"}, "sum");
    ModelBuilder::attr(b.node("Concat", {"table", "sum"}, {"y"}, "join"), "axis", int64_t(1));
    return b;
  };
  ModelRunner runner;
  runner.options.batch = 3;
  runner.options.constants = {"table"};
  EXPECT_THAT(runner.run(modelOf({1, 5, 1, 5})), ElementsAre(1, 5, 1, 6, 1, 5, 3, 8, 1, 5, 5, 10));
  EXPECT_THAT(importError(modelOf({1, 5, 2, 5}).bytes(), runner.options),
              AllOf(HasSubstr("node 'sum' (Add): shapes [batch, 2] and [2, 2] do not broadcast"),
                    HasSubstr("2 stands where the batch does")));
}

/// A tracer's `torch.zeros_like(x)` has the batch of its example, 5, as a number.
TEST(FixedBatch, ScatterElementsIntoZerosOfTheExample) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.ints("sizes", {2}, {5, 3});
  b.ints("places", {1, 2}, {2, 0});
  b.node("ConstantOfShape", {"sizes"}, {"zeros"});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Expand", {"places", "shape"}, {"i"});
  ModelBuilder::attr(b.node("ScatterElements", {"zeros", "i", "x"}, {"y"}), "axis", int64_t(1));
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(1, 0, 0, 3, 0, 2));
}

/// A wrong size beside the batch is no fixed batch size.
TEST(FixedBatch, ReshapeToAnotherNumberOfElementsSaysWhatToDo) {
  for (auto [first, remedy] : {std::pair(0, "repeat_interleave"), std::pair(7, "fixed batch")}) {
    ModelBuilder b;
    b.input("x", {"batch", "6", "4"});
    b.output("y");
    b.ints("shape", {3}, {first, 2, 4});
    b.node("Reshape", {"x", "shape"}, {"y"});
    EXPECT_THAT(importError(b.bytes()), HasSubstr(remedy));
  }
}

TEST(FixedBatch, WhatCannotBeRebatchedSaysHowToExport) {
  EXPECT_THAT(importError(fixedModel("2", {3, 8}, {0, 1}).bytes()),
              HasSubstr("node 'reshape' (Reshape): reshapes [batch, 2, 6] to [3, 8]"));
  EXPECT_THAT(importError(fixedModel("2", {3, 8}, {0, 1}).bytes()),
              HasSubstr("export it with a dynamic batch dim"));
}

/// A decoder step as exported with a cache: without one it is the whole sequence.
TEST(Inputs, PastKeysAreTakenAsEmpty) {
  ModelBuilder b(23);
  b.input("q", {"batch", "2", "seq", "4"});
  b.input("past_key_values.0.key", {"batch", "2", "past_sequence_length", "4"});
  b.input("past_key_values.0.value", {"batch", "2", "past_sequence_length", "4"});
  b.input("attention_mask", {"batch", "past_sequence_length + seq"}, /*isFloat=*/false);
  b.output("y");
  onnx::NodeProto &node =
      b.node("Attention", {"q", "q", "q", "", "past_key_values.0.key", "past_key_values.0.value"},
             {"y", "present.key", "present.value"});
  ModelBuilder::attr(node, "is_causal", int64_t(1));
  b.output("present.key");
  frontend::ImportOptions options;
  options.seq = 3;
  mlir::MLIRContext context;
  TemporaryFolder folder;
  auto model = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
  ASSERT_TRUE(bool(model)) << model.error().message;
  ASSERT_EQ(model->inputs.size(), 1u);
  EXPECT_THAT(model->outputs[1].shape, ElementsAre(2, 2, 3, 4));
  EXPECT_THAT(model->warnings, Contains(HasSubstr("'past_key_values.0.key' (and 1 more) are taken "
                                                  "as empty")));
  options.dims["past_sequence_length"] = 5;
  auto cached = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
  ASSERT_TRUE(bool(cached)) << cached.error().message;
  EXPECT_EQ(cached->inputs.size(), 3u);
  EXPECT_THAT(cached->outputs[1].shape, ElementsAre(2, 2, 8, 4));
}

TEST(Inputs, PositionIdsCountUnlessKept) {
  ModelBuilder b;
  b.input("tokens", {"batch", "seq"}, /*isFloat=*/false);
  b.input("position_ids", {"batch", "seq"}, /*isFloat=*/false);
  b.output("y");
  b.node("Add", {"tokens", "position_ids"}, {"y"});
  frontend::ImportOptions options;
  options.seq = 3;
  mlir::MLIRContext context;
  TemporaryFolder folder;
  auto model = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
  ASSERT_TRUE(bool(model)) << model.error().message;
  ASSERT_EQ(model->inputs.size(), 1u);
  EXPECT_THAT(model->warnings, Contains(HasSubstr("'position_ids' is held at 0, 1, 2")));
  ModelRunner kept;
  kept.options.seq = 3;
  EXPECT_THAT(kept.run(b), ElementsAre(0, 2, 4, 6, 8, 10));
}

/// OPT counts the tokens of its mask and adds 2, so its table has two more rows than positions.
/// An input with symbols of its own, as exporters write that cannot prove sizes equal.
TEST(Inputs, DimsOfTheirOwnAreBatchAndSequence) {
  ModelBuilder b;
  b.input("ids", {"batch", "seq"}, /*isFloat=*/false);
  b.input("decoder_ids", {"s11", "s12"}, /*isFloat=*/false);
  b.output("y");
  b.node("Add", {"ids", "decoder_ids"}, {"y"});
  frontend::ImportOptions options;
  options.batch = 3, options.seq = 5;
  mlir::MLIRContext context;
  TemporaryFolder folder;
  auto imported = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
  ASSERT_TRUE(bool(imported)) << imported.error().message;
  EXPECT_THAT(imported->warnings,
              Contains(HasSubstr("dim 0 of input 'decoder_ids' ('s11') is taken for the batch")));
  EXPECT_THAT(imported->warnings,
              Contains(HasSubstr("the length of input 'decoder_ids' ('s12') is 5")));
}

TEST(Bindings, MessagesNameAnAssumedSequence) {
  ModelBuilder b;
  b.input("x", {"batch", "seq"});
  b.floats("w", {24}, std::vector<float>(24, 1));
  b.output("y");
  b.node("Add", {"x", "w"}, {"y"}, "sum");
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("node 'sum' (Add): shapes [batch, 4096] and [24] do not broadcast"),
                    HasSubstr("sequence length 4096, the default; --seq chooses another")));
}

TEST(Bindings, ZerosReadNoPositions) {
  ModelBuilder b;
  b.input("ids", {"batch", "seq"}, /*isFloat=*/false);
  b.output("y");
  b.floats("tokens", {8, 2}, std::vector<float>(16, 1));
  b.floats("types", {2, 2}, std::vector<float>(4, 1));
  b.node("Gather", {"tokens", "ids"}, {"x"});
  b.node("Shape", {"ids"}, {"shape"});
  b.node("ConstantOfShape", {"shape"}, {"zeros"});
  ModelBuilder::attr(b.node("Cast", {"zeros"}, {"whole"}), "to", int64_t(7));
  b.node("Gather", {"types", "whole"}, {"t"});
  b.node("Add", {"x", "t"}, {"y"});
  mlir::MLIRContext context;
  TemporaryFolder folder;
  auto imported = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), {});
  ASSERT_TRUE(bool(imported)) << imported.error().message;
  EXPECT_EQ(imported->seq, 4096);
}

/// TorchScript writes the 0 and the 1 of `mix[0]` and `mix[1]` as nodes.
TEST(Bindings, OneRowOfATableIsNoPosition) {
  ModelBuilder b;
  b.input("x", {"batch", "seq", "4"});
  b.output("y");
  b.floats("mix", {2, 4}, std::vector<float>(8, 1));
  onnx::NodeProto &row = b.node("Constant", {}, {"row"});
  onnx::AttributeProto &attribute = *row.add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  attribute.mutable_t()->set_data_type(onnx::TensorProto::INT64);
  attribute.mutable_t()->add_int64_data(1);
  b.node("Gather", {"mix", "row"}, {"m"});
  b.node("Mul", {"x", "m"}, {"y"});
  mlir::MLIRContext context;
  TemporaryFolder folder;
  auto imported = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), {});
  ASSERT_TRUE(bool(imported)) << imported.error().message;
  EXPECT_EQ(imported->seq, 4096);
}

TEST(Bindings, TheDefaultSequenceLeavesRoomForAnOffsetOfPositions) {
  for (int64_t added : {0, 2}) {
    test::ModelBuilder b;
    b.input("input_ids", {"batch", "seq"}, false);
    b.input("attention_mask", {"batch", "seq"}, false);
    b.output("y");
    b.floats("tokens", {8, 2}, std::vector<float>(16, 1));
    b.floats("positions", {10, 2}, std::vector<float>(20, 1));
    b.ints("axis", {}, {1});
    b.ints("one", {}, {1});
    b.ints("offset", {}, {added});
    b.node("CumSum", {"attention_mask", "axis"}, {"count"});
    b.node("Mul", {"count", "attention_mask"}, {"masked"});
    b.node("Sub", {"masked", "one"}, {"place"});
    b.node("Add", {"place", "offset"}, {"row"});
    b.node("Gather", {"positions", "row"}, {"p"});
    b.node("Gather", {"tokens", "input_ids"}, {"t"});
    b.node("Add", {"t", "p"}, {"y"});
    test::TemporaryFolder folder;
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    auto model = frontend::importOnnx(context, folder.write("model.onnx", b.bytes()), {});
    ASSERT_TRUE(bool(model)) << model.error().message;
    EXPECT_EQ(model->seq, 10 - added);
  }
}

/// A table of clipped distances, as T5's, does not bound the sequence.
TEST(Bindings, ATableOfDistancesIsNoTableOfPositions) {
  test::ModelBuilder b;
  b.input("input_ids", {"batch", "seq"}, false);
  b.output("y");
  b.floats("tokens", {8, 2}, std::vector<float>(16, 1));
  b.floats("distances", {4, 2}, std::vector<float>(8, 1));
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("three", {}, {3});
  b.node("Shape", {"input_ids"}, {"shape"});
  b.node("Gather", {"shape", "one"}, {"length"});
  b.node("Range", {"zero", "length", "one"}, {"place"});
  b.node("Min", {"place", "three"}, {"distance"});
  b.node("Gather", {"distances", "distance"}, {"d"});
  b.node("Gather", {"tokens", "input_ids"}, {"t"});
  b.node("Add", {"t", "d"}, {"y"});
  test::TemporaryFolder folder;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto model = frontend::importOnnx(context, folder.write("model.onnx", b.bytes()), {});
  ASSERT_TRUE(bool(model)) << model.error().message;
  EXPECT_EQ(model->seq, 4096);
}

} // namespace
