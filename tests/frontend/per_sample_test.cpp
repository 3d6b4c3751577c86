//===- per_sample_test.cpp - Loops over samples ----------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

namespace {

onnx::NodeProto withAttr(onnx::NodeProto node, const std::string &name, int64_t value) {
  ModelBuilder::attr(node, name, value);
  return node;
}

/// codes [batch, 3], the table [4, 2] with rows 0 1, 10 11, 20 21 and 30 31, and nn.EmbeddingBag's
/// lists: the flat codes, the first one of each sample, and the one behind its last.
ModelBuilder withBags() {
  ModelBuilder b(18);
  b.input("codes", {"batch", "3"}, /*isFloat=*/false);
  b.output("y");
  b.floats("table", {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  b.ints("open", {1}, {-1});
  b.ints("first", {1}, {0});
  b.ints("second", {1}, {1});
  b.ints("third", {1}, {2});
  b.ints("end", {1}, {std::numeric_limits<int64_t>::max()});
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("three", {}, {3});
  b.ints("yes_int", {}, {1});
  ModelBuilder::attr(b.node("Cast", {"yes_int"}, {"yes"}), "to", int64_t(9));
  b.node("Reshape", {"codes", "open"}, {"flat"});
  b.node("Shape", {"flat"}, {"size"});
  b.node("Squeeze", {"size", "first"}, {"total"});
  b.node("Range", {"zero", "total", "three"}, {"starts"});
  ModelBuilder::attr(b.node("Concat", {"starts", "size"}, {"offsets"}), "axis", int64_t(0));
  b.node("Slice", {"offsets", "second", "end", "first"}, {"ends"});
  b.node("Size", {"starts"}, {"bags"});
  return b;
}

const std::vector<double> kCodes = {1, 2, 0, 3, 3, 1};

/// The form of TorchScript's exporter.
TEST(SampleLoop, RowsOfBagsAreGatheredAtOnce) {
  for (const auto &[reduction, expected] :
       {std::pair<std::string, std::vector<double>>("ReduceSum", {30, 33, 70, 73}),
        std::pair<std::string, std::vector<double>>("ReduceMax", {20, 21, 30, 31})}) {
    ModelBuilder b = withBags();
    onnx::NodeProto &loop = b.node("Loop", {"bags", "yes"}, {"y"}, "loop");
    onnx::NodeProto rows = makeNode("Gather", {"table", "mine"}, {"rows"});
    onnx::NodeProto sum = withAttr(makeNode(reduction, {"rows", "first"}, {"r"}), "keepdims", 0);
    graphAttr(loop, "body", {"i", "go"}, {"yes", "r"},
              {makeNode("Gather", {"offsets", "i"}, {"s"}),
               makeNode("Gather", {"ends", "i"}, {"e"}),
               makeNode("Unsqueeze", {"s", "first"}, {"s1"}),
               makeNode("Unsqueeze", {"e", "first"}, {"e1"}),
               makeNode("Slice", {"flat", "s1", "e1", "first"}, {"mine"}), rows, sum});
    ModelRunner runner;
    runner.inputs["codes"] = kCodes;
    EXPECT_EQ(runner.run(b), expected);
    EXPECT_THAT(runner.shape, ElementsAre(2, 2));
    EXPECT_EQ(runner.count("gather"), 1u);
  }
}

/// The form of the dynamo exporter: a condition without a trip count, a counter, and a list.
TEST(SampleLoop, AListOfEachSamplesTensorIsJoined) {
  ModelBuilder b = withBags();
  b.ints("shape", {2}, {1, 2});
  b.floats("none", {1}, {0});
  b.node("SequenceEmpty", {}, {"empty"});
  b.node("Less", {"zero", "bags"}, {"any"});
  b.node("Gather", {"table", "flat"}, {"all"});
  onnx::NodeProto &loop = b.node("Loop", {"", "any", "zero", "empty"}, {"count", "list"}, "loop");
  onnx::NodeProto choice = makeNode("If", {"isEmpty"}, {"r"}, "choice");
  graphAttr(choice, "then_branch", {}, {"zeros"},
            {makeNode("Expand", {"none", "shape"}, {"zeros"})});
  graphAttr(choice, "else_branch", {}, {"sum"},
            {makeNode("Slice", {"all", "s", "e"}, {"rows"}),
             withAttr(makeNode("ReduceSum", {"rows", "first"}, {"sum"}), "keepdims", 1)});
  graphAttr(
      loop, "body", {"i", "go", "k", "have"}, {"more", "next", "longer"},
      {makeNode("Reshape", {"k", "open"}, {"at"}), makeNode("CastLike", {"second", "at"}, {"step"}),
       makeNode("Add", {"at", "step"}, {"to"}), makeNode("Add", {"at", "third"}, {"last"}),
       makeNode("Slice", {"offsets", "at", "to"}, {"s"}),
       makeNode("Slice", {"offsets", "to", "last"}, {"e"}),
       makeNode("Equal", {"s", "e"}, {"isEmpty"}), choice,
       makeNode("SequenceInsert", {"have", "r"}, {"longer"}),
       makeNode("Add", {"k", "one"}, {"next"}), makeNode("Less", {"next", "bags"}, {"more"})});
  ModelBuilder::attr(b.node("ConcatFromSequence", {"list"}, {"y"}), "axis", int64_t(0));
  ModelRunner runner;
  runner.inputs["codes"] = kCodes;
  EXPECT_THAT(runner.run(b), ElementsAre(30, 33, 70, 73));
  EXPECT_THAT(runner.shape, ElementsAre(2, 2));
}

/// Modes mean and max of the dynamo exporter: the last sample reads to the end of the list, and
/// divides by the codes that are left there. The branches are one, and nothing selects by sample.
TEST(SampleLoop, TheLastSampleIsAsTheOthers) {
  for (bool isMean : {true, false}) {
    ModelBuilder b = withBags();
    b.node("Gather", {"table", "flat"}, {"all"});
    b.node("Sub", {"bags", "one"}, {"before"});
    onnx::NodeProto &loop = b.node("Loop", {"bags", "yes"}, {"y"}, "loop");
    onnx::NodeProto choice = makeNode("If", {"isLast"}, {"r"}, "choice");
    auto rows = [](const char *end, const char *name) {
      return makeNode("Slice", {"all", "s1", end, "first"}, {name});
    };
    if (isMean) {
      graphAttr(choice, "then_branch", {}, {"quotient"},
                {rows("e1", "some"),
                 withAttr(makeNode("ReduceSum", {"some", "first"}, {"sum"}), "keepdims", 0),
                 makeNode("Sub", {"total", "s"}, {"left"}),
                 withAttr(makeNode("Cast", {"left"}, {"number"}), "to", 1),
                 makeNode("Div", {"sum", "number"}, {"quotient"})});
      graphAttr(choice, "else_branch", {}, {"mean"},
                {rows("e1", "mine"),
                 withAttr(makeNode("ReduceMean", {"mine", "first"}, {"mean"}), "keepdims", 0)});
    } else {
      graphAttr(choice, "then_branch", {}, {"largest"},
                {rows("size", "some"),
                 withAttr(makeNode("ReduceMax", {"some", "first"}, {"largest"}), "keepdims", 0)});
      graphAttr(
          choice, "else_branch", {}, {"mine_largest"},
          {rows("e1", "mine"),
           withAttr(makeNode("ReduceMax", {"mine", "first"}, {"mine_largest"}), "keepdims", 0)});
    }
    graphAttr(loop, "body", {"i", "go"}, {"yes", "r"},
              {makeNode("Gather", {"offsets", "i"}, {"s"}),
               makeNode("Gather", {"ends", "i"}, {"e"}),
               makeNode("Unsqueeze", {"s", "first"}, {"s1"}),
               makeNode("Unsqueeze", {"e", "first"}, {"e1"}),
               makeNode("Equal", {"i", "before"}, {"isLast"}), choice});
    ModelRunner runner;
    runner.inputs["codes"] = kCodes;
    std::vector<double> expected = {20, 21, 30, 31};
    if (isMean)
      expected = {10, 11, 70.0 / 3, 73.0 / 3};
    EXPECT_THAT(runner.run(b), Pointwise(DoubleNear(1e-12), expected));
    EXPECT_EQ(runner.count("select"), 0u);
    EXPECT_EQ(runner.count("gather"), 1u);
  }
}

/// x [batch, 2, 3] and y [batch, 3]: softmax(x[i] y[i]) beside the row sums of x[i] transposed, and
/// what one sample has in front of every other of its dims.
TEST(SampleLoop, OpsOnASampleAreOpsBehindTheBatch) {
  auto modelOf = [](bool isLoop) {
    ModelBuilder b(18);
    b.input("x", {"batch", "2", "3"});
    b.input("v", {"batch", "3"});
    b.output("y");
    b.ints("zero", {}, {0});
    b.ints("first", {1}, {isLoop ? 0 : 1});
    b.ints("second", {1}, {isLoop ? 1 : 2});
    b.ints("flat", {1}, {-1});
    b.ints("flatBatch", {2}, {0, -1});
    b.floats("w", {3}, {1, 2, -1});
    b.ints("yes_int", {}, {1});
    ModelBuilder::attr(b.node("Cast", {"yes_int"}, {"yes"}), "to", int64_t(9));
    b.node("Shape", {"x"}, {"shape"});
    b.node("Gather", {"shape", "zero"}, {"samples"});
    std::vector<onnx::NodeProto> nodes;
    std::string x = "x", v = "v";
    if (isLoop) {
      nodes = {makeNode("Gather", {"x", "i"}, {"xi"}), makeNode("Gather", {"v", "i"}, {"vi"})};
      x = "xi", v = "vi";
    }
    nodes.push_back(makeNode("Mul", {x, "w"}, {"scaled"}));
    nodes.push_back(makeNode("Unsqueeze", {v, "second"}, {"column"}));
    nodes.push_back(makeNode("MatMul", {"scaled", isLoop ? v : "column"}, {"scores"}));
    if (!isLoop)
      nodes.push_back(makeNode("Squeeze", {"scores", "second"}, {"flatScores"}));
    std::string scores = isLoop ? "scores" : "flatScores";
    nodes.push_back(withAttr(makeNode("Softmax", {scores}, {"p"}), "axis", isLoop ? 0 : 1));
    onnx::NodeProto turned = makeNode("Transpose", {x}, {"t"});
    ModelBuilder::attr(turned, "perm",
                       isLoop ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0, 2, 1});
    nodes.push_back(turned);
    nodes.push_back(withAttr(makeNode("ReduceSum", {"t", "first"}, {"s"}), "keepdims", 0));
    nodes.push_back(makeNode("Reshape", {x, isLoop ? "flat" : "flatBatch"}, {"all"}));
    onnx::NodeProto join = makeNode("Concat", {"p", "s", "all"}, {isLoop ? "r" : "y"});
    nodes.push_back(withAttr(join, "axis", isLoop ? 0 : 1));
    if (isLoop)
      graphAttr(b.node("Loop", {"samples", "yes"}, {"y"}, "loop"), "body", {"i", "go"},
                {"yes", "r"}, nodes);
    else
      for (const onnx::NodeProto &node : nodes)
        *b.proto.mutable_graph()->add_node() = node;
    return b;
  };
  ModelRunner looped, whole;
  looped.inputs["v"] = whole.inputs["v"] = {0.5, 0.25, 1, 2, 0.125, 0};
  EXPECT_EQ(looped.run(modelOf(true)), whole.run(modelOf(false)));
  EXPECT_EQ(looped.shape, whole.shape);
}

TEST(SampleLoop, OneSampleMayNotUseTheResultOfAnother) {
  for (bool isKnown : {false, true}) {
    ModelBuilder b = withBags();
    b.floats("half", {2}, {0.5, 0.5});
    onnx::NodeProto &loop =
        b.node("Loop", {"bags", "yes", isKnown ? "one" : "half"}, {"y"}, "loop");
    graphAttr(loop, "body", {"i", "go", "s"}, {"yes", "n"}, {makeNode("Add", {"s", "s"}, {"n"})});
    EXPECT_THAT(importError(b.bytes()),
                AllOf(HasSubstr("node 'loop' (Loop): carries a"),
                      HasSubstr("from sample to sample"), HasSubstr("for a tensor [batch, ...]")));
  }
}

TEST(SampleLoop, OtherOpsAreRefusedByName) {
  ModelBuilder b = withBags();
  onnx::NodeProto &loop = b.node("Loop", {"bags", "yes"}, {"y"}, "loop");
  graphAttr(
      loop, "body", {"i", "go"}, {"yes", "r"},
      {makeNode("Gather", {"codes", "i"}, {"c"}), makeNode("NonZero", {"c"}, {"r"}, "where")});
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("where' (NonZero): is supported on the whole batch only"),
                    HasSubstr("in a loop over samples")));
}

} // namespace
