//===- sequence_test.cpp - Sequences at import --------------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// x[batch, 4] is 0 .. 7.
ModelBuilder withInput() {
  ModelBuilder b(18);
  b.input("x", {"batch", "4"});
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("minusOne", {}, {-1});
  return b;
}

std::vector<double> outputOf(ModelBuilder &b, const std::string &output = "y") {
  b.output(output);
  return ModelRunner().run(b);
}

std::string errorOf(ModelBuilder &b, const std::string &output = "y") {
  b.output(output);
  return importError(b.bytes());
}

/// torch.unbind and torch.chunk as torch's older exporter writes them.
TEST(Sequences, SplitAndSelect) {
  ModelBuilder unbind = withInput();
  onnx::NodeProto &split = unbind.node("SplitToSequence", {"x"}, {"parts"});
  ModelBuilder::attr(split, "axis", int64_t(1));
  ModelBuilder::attr(split, "keepdims", int64_t(0));
  unbind.node("SequenceAt", {"parts", "one"}, {"second"});
  unbind.node("SequenceAt", {"parts", "minusOne"}, {"last"});
  unbind.node("Sub", {"last", "second"}, {"y"});
  EXPECT_THAT(outputOf(unbind), ElementsAre(2, 2));

  ModelBuilder chunk = withInput();
  chunk.ints("size", {}, {3});
  ModelBuilder::attr(chunk.node("SplitToSequence", {"x", "size"}, {"parts"}), "axis", int64_t(-1));
  chunk.node("SequenceAt", {"parts", "one"}, {"y"});
  EXPECT_THAT(outputOf(chunk), ElementsAre(3, 7));

  ModelBuilder sizes = withInput();
  sizes.ints("sizes", {3}, {1, 0, 3});
  ModelBuilder::attr(sizes.node("SplitToSequence", {"x", "sizes"}, {"parts"}), "axis", int64_t(1));
  sizes.node("SequenceAt", {"parts", "minusOne"}, {"y"});
  EXPECT_THAT(outputOf(sizes), ElementsAre(1, 2, 3, 5, 6, 7));
}

TEST(Sequences, BuildAndJoin) {
  ModelBuilder b = withInput();
  b.node("Neg", {"x"}, {"negative"});
  b.node("SequenceEmpty", {}, {"empty"});
  b.node("SequenceInsert", {"empty", "x"}, {"first"});
  b.node("SequenceInsert", {"first", "negative", "zero"}, {"both"});
  b.node("SequenceConstruct", {"x", "x"}, {"twice"});
  b.node("SequenceErase", {"twice"}, {"once"});
  b.node("SequenceAt", {"once", "zero"}, {"same"});
  b.node("SequenceInsert", {"both", "same", "minusOne"}, {"three"});
  onnx::NodeProto &join = b.node("ConcatFromSequence", {"three"}, {"stacked"});
  ModelBuilder::attr(join, "axis", int64_t(1));
  ModelBuilder::attr(join, "new_axis", int64_t(1));
  b.node("SequenceLength", {"three"}, {"length"});
  b.ints("whole", {1}, {0});
  b.node("Unsqueeze", {"length", "whole"}, {"middle"});
  b.ints("four", {1}, {4});
  ModelBuilder::attr(b.node("Concat", {"whole", "middle", "four"}, {"sizes"}), "axis", int64_t(0));
  b.node("Reshape", {"stacked", "sizes"}, {"y"});
  EXPECT_THAT(outputOf(b), ElementsAre(0, -1, -2, -3, 0, 1, 2, 3, 0, 1, 2, 3, //
                                       -4, -5, -6, -7, 4, 5, 6, 7, 4, 5, 6, 7));
}

TEST(Sequences, ThroughLoopsAndMaps) {
  ModelBuilder b = withInput();
  b.ints("count", {}, {3});
  b.node("SequenceEmpty", {}, {"empty"});
  onnx::NodeProto &loop = b.node("Loop", {"count", "", "empty"}, {"filled"});
  onnx::NodeProto add = makeNode("Cast", {"i"}, {"number"});
  ModelBuilder::attr(add, "to", int64_t(onnx::TensorProto::FLOAT));
  graphAttr(loop, "body", {"i", "c", "list"}, {"c", "longer"},
            {add, makeNode("Mul", {"x", "number"}, {"scaled"}),
             makeNode("SequenceInsert", {"list", "scaled"}, {"longer"})});
  onnx::NodeProto &map = b.node("SequenceMap", {"filled", "x"}, {"mapped"});
  graphAttr(map, "body", {"element", "whole"}, {"sum"},
            {makeNode("Add", {"element", "whole"}, {"sum"})});
  b.node("SequenceAt", {"mapped", "minusOne"}, {"y"});
  EXPECT_THAT(outputOf(b), ElementsAre(0, 3, 6, 9, 12, 15, 18, 21));
}

TEST(Sequences, OptionalTensorsAreTensors) {
  ModelBuilder b = withInput();
  b.node("Optional", {"x"}, {"maybe"});
  b.node("OptionalHasElement", {"maybe"}, {"has"});
  b.node("OptionalHasElement", {""}, {"lacks"});
  b.node("OptionalGetElement", {"maybe"}, {"value"});
  b.floats("other", {1}, {100});
  b.node("Where", {"has", "value", "other"}, {"here"});
  b.node("Where", {"lacks", "other", "here"}, {"y"});
  EXPECT_THAT(outputOf(b), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Sequences, ErrorsNameTheNode) {
  ModelBuilder outside = withInput();
  outside.ints("five", {}, {5});
  outside.node("SequenceConstruct", {"x"}, {"list"});
  outside.node("SequenceAt", {"list", "five"}, {"y"}, "pick");
  EXPECT_THAT(errorOf(outside),
              HasSubstr("node 'pick' (SequenceAt): position 5 is not in a sequence of 1 tensors"));
  ModelBuilder samples = withInput();
  samples.node("SplitToSequence", {"x"}, {"list"}, "unbind");
  samples.node("SequenceAt", {"list", "zero"}, {"y"});
  EXPECT_THAT(errorOf(samples), HasSubstr("node 'unbind' (SplitToSequence): splits the batch"));
  ModelBuilder tensor = withInput();
  tensor.node("SequenceConstruct", {"x"}, {"list"});
  tensor.node("Relu", {"list"}, {"y"}, "r");
  EXPECT_THAT(errorOf(tensor), HasSubstr("node 'r' (Relu): input 0 ('list') is a sequence"));
  ModelBuilder output = withInput();
  output.node("SequenceConstruct", {"x"}, {"list"});
  EXPECT_THAT(errorOf(output, "list"),
              HasSubstr("graph output 'list': is a sequence of tensors, and a plan has tensors"));
  ModelBuilder sequence = withInput();
  sequence.node("SequenceLength", {"x"}, {"y"}, "length");
  EXPECT_THAT(errorOf(sequence),
              HasSubstr("node 'length' (SequenceLength): input 0 ('x') is a tensor"));
}

} // namespace
