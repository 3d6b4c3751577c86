//===- exporters_test.cpp - Ops that torch's newer exporter writes ---------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

/// x[batch, 2] squeezed along both dims, exported from `op`.
ModelBuilder squeezed(const std::string &op) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.ints("axis", {1}, {1});
  onnx::StringStringEntryProto &entry =
      *b.node("Squeeze", {"x", "axis"}, {"y"}, "squeeze").add_metadata_props();
  entry.set_key("namespace");
  entry.set_value(": __main__.Model/squeeze: " + op);
  return b;
}

/// PixArt of diffusers calls x.squeeze(1) on [batch, tokens, width].
TEST(TorchSqueeze, KeepsDimsOfOtherSizes) {
  for (const char *op : {"aten.squeeze.dim", "aten.squeeze.dims"}) {
    ModelRunner runner;
    EXPECT_THAT(runner.run(squeezed(op)), ElementsAre(0, 1, 2, 3)) << op;
  }
  EXPECT_THAT(importError(squeezed("aten.view.default").bytes()),
              HasSubstr("squeezes dim 1 of [batch, 2], which is not of size 1"));
}

/// 40 maxima of 300 rows with 64 columns: 768,000 pairs in each sample.
TEST(ScatterMaximum, PairsAreCountedInEachSample) {
  ModelBuilder b;
  b.input("x", {"batch", "300", "64"});
  b.output("y");
  b.ints("row", {1, 40, 64}, std::vector<int64_t>(40 * 64, 7));
  b.ints("ends", {1}, {40});
  b.ints("begin", {1}, {0});
  b.ints("dim", {1}, {1});
  b.node("Slice", {"x", "begin", "ends", "dim"}, {"u"});
  b.node("Shape", {"u"}, {"shape"});
  b.node("Expand", {"row", "shape"}, {"i"});
  onnx::NodeProto &scatter = b.node("ScatterElements", {"x", "i", "u"}, {"z"});
  ModelBuilder::attr(scatter, "axis", int64_t(1));
  ModelBuilder::attr(scatter, "reduction", std::string("max"));
  b.ints("seven", {}, {7});
  ModelBuilder::attr(b.node("Gather", {"z", "seven"}, {"row_seven"}), "axis", int64_t(1));
  b.ints("zero", {}, {0});
  ModelBuilder::attr(b.node("Gather", {"row_seven", "zero"}, {"y"}), "axis", int64_t(1));
  ModelRunner runner;
  runner.options.batch = 1;
  EXPECT_THAT(runner.run(b), ElementsAre(39 * 64));
}

/// Swin of torchvision assigns to windows that are shifted by 0.
TEST(EmptySlice, AssignedTo) {
  ModelBuilder b;
  b.input("x", {"batch", "2"}, false);
  b.output("y");
  b.ints("i", {0, 2}, {});
  b.ints("u", {0}, {});
  b.node("ScatterND", {"x", "i", "u"}, {"y"});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(0, 1, 2, 3));
}

/// Weights standardized by batch_norm without running statistics, as in NFNet: the statistics of
/// [[0, 2], [1, 5]] are means of 1 and 3, and variances of 1 and 4.
TEST(BatchNorm, OfComputedStatisticsIsArithmetic) {
  ModelBuilder b;
  b.input("x", {"batch", "2", "2"});
  b.output("y");
  b.floats("weight", {1, 2, 2}, {0, 2, 1, 5});
  b.floats("scale", {2}, {1, 10});
  b.floats("bias", {2}, {0, 0});
  b.ints("last", {1}, {2});
  b.ints("sizes", {1}, {2});
  b.node("ReduceMean", {"weight", "last"}, {"means"});
  b.node("Sub", {"weight", "means"}, {"centred"});
  b.node("Mul", {"centred", "centred"}, {"squares"});
  b.node("ReduceMean", {"squares", "last"}, {"variances"});
  b.node("Reshape", {"means", "sizes"}, {"mean"});
  b.node("Reshape", {"variances", "sizes"}, {"variance"});
  floatAttr(
      b.node("BatchNormalization", {"weight", "scale", "bias", "mean", "variance"}, {"standard"}),
      "epsilon", 0);
  b.node("MatMul", {"x", "standard"}, {"y"});
  ModelRunner runner;
  runner.options.parameters = {"weight"};
  // x of sample 0 is [[0, 1], [2, 3]]; the standard weight is [[-1, 1], [-10, 10]].
  runner.options.batch = 1;
  EXPECT_THAT(runner.run(b), ElementsAre(-10, 10, -32, 32));
  EXPECT_EQ(runner.count("batch_norm"), 0u);
}

/// CodeGen's table[positions] is a GatherND with positions [1, seq, 1].
TEST(PositionTable, ReadByGatherNd) {
  ModelBuilder b;
  b.input("x", {"batch", "seq"}, false);
  b.output("y");
  b.floats("table", {64, 2}, std::vector<float>(128, 1));
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("last", {1}, {-1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "one"}, {"length"});
  b.node("Range", {"zero", "length", "one"}, {"positions"});
  b.node("Unsqueeze", {"positions", "last"}, {"rows"});
  b.node("GatherND", {"table", "rows"}, {"read"});
  ModelBuilder::attr(b.node("Cast", {"x"}, {"numbers"}), "to", int64_t(onnx::TensorProto::FLOAT));
  b.node("Unsqueeze", {"numbers", "last"}, {"column"});
  b.node("Add", {"column", "read"}, {"y"});
  ModelRunner runner;
  runner.run(b);
  EXPECT_THAT(runner.model->warnings,
              Contains(HasSubstr("sequence length 64, the length of the position table")));
}

/// YOSO's list of positions begins with 2, in a table with two more rows.
TEST(PositionTable, ReadByAListOfFewerPositions) {
  ModelBuilder b;
  b.input("x", {"batch", "seq"}, false);
  b.output("y");
  b.floats("table", {6, 2}, std::vector<float>(12, 1));
  b.ints("position_ids", {1, 4}, {2, 3, 4, 5});
  b.ints("first", {1}, {0});
  b.ints("one", {1}, {1});
  ModelBuilder::attr(b.node("Shape", {"x"}, {"length"}), "start", int64_t(1));
  b.node("Slice", {"position_ids", "first", "length", "one"}, {"positions"});
  b.node("Gather", {"table", "positions"}, {"read"});
  ModelBuilder::attr(b.node("Cast", {"x"}, {"numbers"}), "to", int64_t(onnx::TensorProto::FLOAT));
  b.ints("last", {1}, {-1});
  b.node("Unsqueeze", {"numbers", "last"}, {"column"});
  b.node("Add", {"column", "read"}, {"y"});
  ModelRunner runner;
  runner.run(b);
  EXPECT_THAT(runner.model->warnings, Contains(HasSubstr("sequence length 4, the length")));
}

/// A table that is sliced up to a length, such as cosines of rotary angles held as a buffer.
TEST(PositionTable, SlicedUpToTheLength) {
  for (const char *sized : {"x", "picture"}) {
    ModelBuilder b;
    b.input("x", {"batch", "seq", "2"});
    b.input("picture", {"batch", "5", "2"});
    b.output("y");
    b.floats("cosines", {6, 2}, std::vector<float>(12, 1));
    b.ints("first", {1}, {0});
    onnx::NodeProto &shape = b.node("Shape", {sized}, {"length"});
    ModelBuilder::attr(shape, "start", int64_t(1));
    ModelBuilder::attr(shape, "end", int64_t(2));
    b.node("Slice", {"cosines", "first", "length", "first"}, {"read"});
    b.node("ReduceSum", {"picture"}, {"sum"});
    b.node("Add", {std::string(sized) == "x" ? "x" : "sum", "read"}, {"turned"});
    b.node("ReduceSum", {"turned"}, {"total"});
    b.node("Add", {"x", "total"}, {"y"});
    ModelRunner runner;
    runner.run(b);
    const bool isBounded = std::string(sized) == "x";
    EXPECT_THAT(runner.model->warnings,
                Contains(HasSubstr(isBounded ? "sequence length 6, the length of the position table"
                                             : "sequence length 4096, the default")));
  }
}

/// TorchScript writes tables that are no buffers as Constant nodes, as in CTRL, and their bounds as
/// numbers that it unsqueezes.
TEST(PositionTable, HeldByAConstant) {
  ModelBuilder b;
  b.input("x", {"batch", "seq", "2"});
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  onnx::TensorProto table;
  table.set_data_type(onnx::TensorProto::FLOAT);
  table.add_dims(6);
  table.add_dims(2);
  for (int i = 0; i < 12; ++i)
    table.add_float_data(float(i));
  onnx::AttributeProto &value = *b.node("Constant", {}, {"table"}).add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  *value.mutable_t() = table;
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "one"}, {"length"});
  b.ints("axes", {1}, {0});
  for (bool isSliced : {false, true}) {
    ModelBuilder copy = b;
    if (isSliced) {
      for (const char *bound : {"zero", "length", "one"})
        copy.node("Unsqueeze", {bound, "axes"}, {std::string(bound) + "s"});
      copy.node("Slice", {"table", "zeros", "lengths", "zeros", "ones"}, {"read"});
    } else {
      copy.node("Range", {"zero", "length", "one"}, {"positions"});
      copy.node("Gather", {"table", "positions"}, {"read"});
    }
    copy.node("Add", {"x", "read"}, {"y"});
    ModelRunner runner;
    runner.run(copy);
    EXPECT_THAT(runner.model->warnings, Contains(HasSubstr("sequence length 6, the length")));
  }
}

/// One number in the file, repeated for all places, is no list of one position.
TEST(PositionTable, ReadByARepeatedNumber) {
  ModelBuilder b;
  b.input("x", {"batch", "seq"}, false);
  b.output("y");
  b.floats("table", {6, 2}, std::vector<float>(12, 1));
  b.ints("kind", {1, 1}, {3});
  b.ints("last", {1}, {-1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Expand", {"kind", "shape"}, {"kinds"});
  b.node("Gather", {"table", "kinds"}, {"read"});
  ModelBuilder::attr(b.node("Cast", {"x"}, {"numbers"}), "to", int64_t(onnx::TensorProto::FLOAT));
  b.node("Unsqueeze", {"numbers", "last"}, {"column"});
  b.node("Add", {"column", "read"}, {"y"});
  ModelRunner runner;
  runner.run(b);
  EXPECT_THAT(runner.model->warnings, Not(Contains(HasSubstr("sequence length 1,"))));
}

/// A table expanded to the two samples of the example, and read by those of a batch.
TEST(ExportedBatch, IsNamedWhereReadsNeedMore) {
  ModelBuilder b;
  b.input("x", {"batch", "3"}, false);
  b.output("y");
  b.floats("table", {2, 8}, std::vector<float>(16, 1));
  ModelBuilder::attr(b.node("GatherElements", {"table", "x"}, {"y"}), "axis", int64_t(1));
  const std::string error = importError(b.bytes());
  EXPECT_THAT(error, HasSubstr("its indices have the batch there, and its data 2"));
  EXPECT_THAT(error, HasSubstr("export the model with a dynamic batch dim"));
}

} // namespace
