//===- control_test.cpp - If, Loop and Scan --------------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

ModelBuilder withInput(const std::vector<std::string> &dims = {"batch", "2"}) {
  ModelBuilder builder;
  builder.input("x", dims);
  builder.output("y");
  return builder;
}

onnx::NodeProto &bools(ModelBuilder &b, const std::string &name, bool value) {
  b.ints(name + "_int", {}, {value});
  onnx::NodeProto &cast = b.node("Cast", {name + "_int"}, {name});
  ModelBuilder::attr(cast, "to", int64_t(onnx::TensorProto::BOOL));
  return cast;
}

/// A shape decides the branch. Both branches read values of the outer graph, and one has a name
/// that exists there too.
TEST(If, TakesTheBranchThatShapesDecide) {
  for (const std::string size : {"2", "3"}) {
    ModelBuilder b = withInput({"batch", size});
    b.ints("two", {1}, {2});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"n"}), "start", int64_t(1));
    b.node("Equal", {"n", "two"}, {"is_two"});
    b.node("Neg", {"x"}, {"t"});
    onnx::NodeProto &node = b.node("If", {"is_two"}, {"y"}, "choice");
    graphAttr(node, "then_branch", {}, {"r"},
              {makeNode("Add", {"x", "x"}, {"t"}), makeNode("Add", {"t", "x"}, {"r"})});
    graphAttr(node, "else_branch", {}, {"t"}, {});
    ModelRunner runner;
    runner.options.batch = 1;
    if (size == "2") {
      EXPECT_THAT(runner.run(b), ElementsAre(0, 3));
    } else {
      EXPECT_THAT(runner.run(b), ElementsAre(-0.0, -1, -2));
    }
  }
}

TEST(If, TheOtherBranchMayHoldAnything) {
  ModelBuilder b = withInput();
  bools(b, "yes", true);
  onnx::NodeProto &node = b.node("If", {"yes"}, {"y"}, "choice");
  graphAttr(node, "then_branch", {}, {"x"}, {});
  graphAttr(node, "else_branch", {}, {"r"}, {makeNode("Unheard", {"x"}, {"r"}, "strange")});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, 1, 2, 3));
  b.proto.mutable_graph()->mutable_initializer(0)->set_int64_data(0, 0);
  EXPECT_THAT(importError(b.bytes()),
              HasSubstr("node 'choice' (If): node 'choice/else_branch/strange' (Unheard): is not "
                        "supported"));
}

TEST(If, AConditionOfDataIsRefused) {
  ModelBuilder b = withInput();
  b.floats("zero", {}, {0});
  ModelBuilder::attr(b.node("ReduceMax", {"x"}, {"m"}), "keepdims", int64_t(0));
  b.node("Greater", {"m", "zero"}, {"c"});
  onnx::NodeProto &node = b.node("If", {"c"}, {"y"}, "choice");
  graphAttr(node, "then_branch", {}, {"x"}, {});
  graphAttr(node, "else_branch", {}, {"x"}, {});
  EXPECT_THAT(importError(b.bytes()),
              HasSubstr("node 'choice' (If): the condition is computed from data"));
}

/// A weight read only by a branch is a parameter, under its own name.
TEST(If, WeightsInsideAreParameters) {
  ModelBuilder b = withInput();
  b.floats("outer", {2}, {10, 20});
  bools(b, "yes", true);
  onnx::NodeProto &node = b.node("If", {"yes"}, {"y"}, "choice");
  onnx::GraphProto &graph =
      graphAttr(node, "then_branch", {}, {"r"},
                {makeNode("Mul", {"x", "outer"}, {"t"}), makeNode("Add", {"t", "inner"}, {"r"})});
  float values[] = {0.5, 0.25};
  onnx::TensorProto &inner = *graph.add_initializer();
  inner.set_name("inner");
  inner.set_data_type(onnx::TensorProto::FLOAT);
  inner.add_dims(2);
  inner.set_raw_data(values, sizeof(values));
  graphAttr(node, "else_branch", {}, {"x"}, {});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(0.5, 20.25, 20.5, 60.25));
  ASSERT_EQ(runner.model->parameters.size(), 2u);
  EXPECT_EQ(runner.model->parameters[0].name, "outer");
  EXPECT_EQ(runner.model->parameters[1].name, "inner");
}

/// s = x; for i in 0..2: s = s * 2 + i, and each s is collected.
ModelBuilder loopModel(int64_t count) {
  ModelBuilder b = withInput();
  b.ints("count", {}, {count});
  b.floats("two", {}, {2});
  bools(b, "yes", true);
  onnx::NodeProto &loop = b.node("Loop", {"count", "yes", "x"}, {"last", "all"}, "loop");
  onnx::NodeProto cast = makeNode("Cast", {"i"}, {"f"});
  ModelBuilder::attr(cast, "to", int64_t(onnx::TensorProto::FLOAT));
  graphAttr(loop, "body", {"i", "go", "s"}, {"go", "n", "n"},
            {cast, makeNode("Mul", {"s", "two"}, {"d"}, "double"),
             makeNode("Add", {"d", "f"}, {"n"}, "add")});
  b.ints("axes", {1}, {0});
  ModelBuilder::attr(b.node("ReduceSum", {"all", "axes"}, {"sum"}), "keepdims", int64_t(0));
  b.node("Sub", {"sum", "last"}, {"y"});
  return b;
}

TEST(Loop, UnrollsAndCollects) {
  // 2x, 4x + 1, 8x + 4: all but the last.
  ModelRunner runner;
  EXPECT_THAT(runner.run(loopModel(3)), ElementsAre(1, 7, 13, 19));
  EXPECT_EQ(runner.count("mul"), 3u);
  bool found = false;
  runner.function().walk([&](mlir::Operation *op) {
    auto id = op->getAttrOfType<mlir::StringAttr>("tbc.id");
    found |= id && id.getValue() == "loop/body/double[2]";
  });
  EXPECT_TRUE(found);
}

TEST(Loop, HugeCountsAreRefused) {
  for (int64_t count : {int64_t(100000), INT64_MAX})
    EXPECT_THAT(importError(loopModel(count).bytes()),
                HasSubstr("node 'loop' (Loop): unrolls to more than 32768 nodes"));
}

/// Doubles a number until it is at least 20; there is no trip count.
TEST(Loop, EndsByAKnownCondition) {
  ModelBuilder b = withInput();
  b.ints("one", {}, {1});
  b.ints("two", {}, {2});
  b.ints("limit", {}, {20});
  bools(b, "yes", true);
  onnx::NodeProto &loop = b.node("Loop", {"", "yes", "one"}, {"n"}, "loop");
  graphAttr(
      loop, "body", {"i", "go", "k"}, {"more", "next"},
      {makeNode("Mul", {"k", "two"}, {"next"}), makeNode("Less", {"next", "limit"}, {"more"})});
  onnx::NodeProto &cast = b.node("Cast", {"n"}, {"f"});
  ModelBuilder::attr(cast, "to", int64_t(onnx::TensorProto::FLOAT));
  b.node("Mul", {"x", "f"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, 32, 64, 96));
}

TEST(Loop, ConditionsAndCountsOfDataAreRefused) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.input("count", {}, /*isFloat=*/false);
  b.output("y");
  bools(b, "yes", true);
  onnx::NodeProto &loop = b.node("Loop", {"count", "yes", "x"}, {"y"}, "loop");
  graphAttr(loop, "body", {"i", "go", "s"}, {"go", "n"}, {makeNode("Neg", {"s"}, {"n"})});
  EXPECT_THAT(importError(b.bytes()), HasSubstr("node 'loop' (Loop): the trip count is computed "
                                                "from data"));
}

TEST(Loop, NestedLoopsCount) {
  ModelBuilder b = withInput();
  b.ints("three", {}, {3});
  bools(b, "yes", true);
  b.floats("one", {}, {1});
  onnx::NodeProto inner = makeNode("Loop", {"three", "go", "s"}, {"n"}, "inner");
  graphAttr(inner, "body", {"j", "go", "s"}, {"go", "n"}, {makeNode("Add", {"s", "one"}, {"n"})});
  onnx::NodeProto &outer = b.node("Loop", {"three", "yes", "x"}, {"y"}, "outer");
  graphAttr(outer, "body", {"i", "go", "s"}, {"go", "n"}, {inner});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(9, 10, 11, 12));
}

/// A running sum over dim 1, forwards and backwards.
TEST(Scan, SlicesAndCollects) {
  for (bool isReversed : {false, true}) {
    ModelBuilder b = withInput({"batch", "3"});
    b.floats("zero", {1}, {0});
    b.ints("like", {1}, {1});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"n"}), "end", int64_t(1));
    b.node("Expand", {"zero", "n"}, {"start"});
    onnx::NodeProto &scan = b.node("Scan", {"start", "x"}, {"total", "y"}, "scan");
    graphAttr(scan, "body", {"sum", "e"}, {"next", "next2"},
              {makeNode("Add", {"sum", "e"}, {"next"}), makeNode("Identity", {"next"}, {"next2"})});
    ModelBuilder::attr(scan, "num_scan_inputs", int64_t(1));
    ModelBuilder::attr(scan, "scan_input_axes", std::vector<int64_t>{1});
    ModelBuilder::attr(scan, "scan_output_axes", std::vector<int64_t>{1});
    for (const char *name : {"scan_input_directions", "scan_output_directions"})
      ModelBuilder::attr(scan, name, std::vector<int64_t>{isReversed});
    ModelRunner runner;
    if (isReversed) {
      EXPECT_THAT(runner.run(b), ElementsAre(3, 3, 2, 12, 9, 5));
    } else {
      EXPECT_THAT(runner.run(b), ElementsAre(0, 1, 3, 3, 7, 12));
    }
    EXPECT_THAT(runner.shape, ElementsAre(2, 3));
  }
}

TEST(Scan, OverTheBatchIsRefused) {
  ModelBuilder b = withInput();
  b.floats("zero", {2}, {0, 0});
  onnx::NodeProto &scan = b.node("Scan", {"zero", "x"}, {"y"}, "scan");
  graphAttr(scan, "body", {"sum", "e"}, {"next"}, {makeNode("Add", {"sum", "e"}, {"next"})});
  ModelBuilder::attr(scan, "num_scan_inputs", int64_t(1));
  EXPECT_THAT(importError(b.bytes()), HasSubstr("node 'scan' (Scan): scans over the batch"));
}

TEST(Loop, ASumOverTheBatchIsRefused) {
  ModelBuilder b = withInput();
  b.ints("zero", {}, {0});
  bools(b, "yes", true);
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
  onnx::NodeProto &loop = b.node("Loop", {"samples", "yes", "x"}, {"y"}, "loop");
  graphAttr(loop, "body", {"i", "go", "s"}, {"go", "n"}, {makeNode("Neg", {"s"}, {"n"})});
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("node 'loop' (Loop): carries a value from sample to sample"),
                    HasSubstr("for a tensor [batch, ...]")));
}

/// The remedies of docs/export.md for models that take samples one by one, or join them.
TEST(Samples, CandidatesOfEachSample) {
  ModelBuilder b(18);
  b.input("query", {"batch", "2"});
  b.input("candidates", {"batch", "3", "2"});
  b.output("y");
  b.ints("two", {1}, {2});
  b.node("Unsqueeze", {"query", "two"}, {"column"});
  b.node("MatMul", {"candidates", "column"}, {"scores"});
  b.node("Squeeze", {"scores", "two"}, {"y"});
  // Queries 0 1 and 2 3; candidates 0 1, 2 3, 4 5 and 6 7, 8 9, 10 11.
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(1, 3, 5, 33, 43, 53));
  EXPECT_THAT(runner.shape, ElementsAre(2, 3));
}

TEST(Samples, FeaturesAtTheTokensOfAMask) {
  ModelBuilder b(18);
  b.input("mask", {"batch", "4"}, /*isFloat=*/false);
  b.input("text", {"batch", "4", "2"});
  b.input("features", {"batch", "2", "2"});
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("two", {1}, {2});
  b.node("CumSum", {"mask", "one"}, {"count"});
  b.node("Sub", {"count", "one"}, {"before"});
  b.node("Clip", {"before", "zero", "one"}, {"place"});
  b.node("Unsqueeze", {"place", "two"}, {"one_index"});
  b.ints("width", {3}, {1, 1, 2});
  b.node("Expand", {"one_index", "width"}, {"index"});
  ModelBuilder::attr(b.node("GatherElements", {"features", "index"}, {"placed"}), "axis",
                     int64_t(1));
  b.node("Unsqueeze", {"mask", "two"}, {"column"});
  ModelBuilder::attr(b.node("Cast", {"column"}, {"isImage"}), "to", int64_t(9));
  b.node("Where", {"isImage", "placed", "text"}, {"y"});
  ModelRunner runner;
  runner.inputs["mask"] = {0, 1, 0, 1, 1, 1, 0, 0};
  runner.inputs["features"] = {20, 21, 22, 23, 24, 25, 26, 27};
  EXPECT_THAT(runner.run(b),
              ElementsAre(0, 1, 20, 21, 4, 5, 22, 23, 24, 25, 26, 27, 12, 13, 14, 15));
}

/// A function with control flow inside, called twice: the bodies stay separate, and an attribute of
/// the call reaches into the body.
TEST(If, InsideAFunction) {
  ModelBuilder b = withInput();
  onnx::NodeProto leaky = makeNode("LeakyRelu", {"m"}, {"r"});
  onnx::AttributeProto &reference = *leaky.add_attribute();
  reference.set_name("alpha");
  reference.set_type(onnx::AttributeProto::FLOAT);
  reference.set_ref_attr_name("slope");
  onnx::NodeProto choice = makeNode("If", {"c"}, {"r"}, "choice");
  graphAttr(choice, "then_branch", {}, {"r"}, {makeNode("Neg", {"a"}, {"m"}), leaky});
  graphAttr(choice, "else_branch", {}, {"a"}, {});
  onnx::FunctionProto &function = *b.proto.add_functions();
  function.set_name("F");
  function.set_domain("local");
  function.add_opset_import()->set_version(18);
  function.add_input("a");
  function.add_input("c");
  function.add_output("r");
  function.add_attribute("slope");
  *function.add_node() = choice;
  bools(b, "yes", true);
  for (auto [in, out, name] : {std::tuple("x", "u", "one"), std::tuple("x", "v", "two")}) {
    onnx::NodeProto &node = b.node("F", {in, "yes"}, {out}, name);
    node.set_domain("local");
    floatAttr(node, "slope", name == std::string("one") ? 2 : 4);
  }
  b.node("Add", {"u", "v"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, -6, -12, -18));
}

/// A loop of the exporter is named after the op that it is for.
TEST(If, IsNamedAfterTheOpOfPyTorch) {
  ModelBuilder b = withInput();
  b.input("flag", {"batch"}, false);
  ModelBuilder::attr(b.node("Cast", {"flag"}, {"yes"}), "to", int64_t(onnx::TensorProto::BOOL));
  onnx::NodeProto &node = b.node("If", {"yes"}, {"y"}, "choice");
  graphAttr(node, "then_branch", {}, {"x"}, {});
  graphAttr(node, "else_branch", {}, {"x"}, {});
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key("namespace");
  entry.set_value(": Model/bag: torch.nn.EmbeddingBag/bag: aten.embedding_bag.padding_idx");
  EXPECT_THAT(importError(b.bytes()), HasSubstr("'choice' (If of aten.embedding_bag.padding_idx)"));
}

} // namespace
