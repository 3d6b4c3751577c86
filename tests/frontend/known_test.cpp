//===- known_test.cpp - Values that are computed at import ----------------===//

#include "tests/frontend/ModelRunner.h"

#include "llvm/Support/raw_ostream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

namespace {

/// The sum of a mask of 2^22 ones for each sample is computed without listing them.
TEST(Known, SumsOfHeldMasksAreNotListed) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.input("attention_mask", {"batch", "seq"}, /*isFloat=*/false);
  b.ints("axes", {1}, {1});
  b.output("y");
  b.node("ReduceSum", {"attention_mask", "axes"}, {"count"});
  ModelBuilder::attr(b.node("Cast", {"count"}, {"length"}), "to", int64_t(1));
  b.node("Div", {"x", "length"}, {"y"});
  frontend::ImportOptions options;
  options.seq = int64_t(1) << 22;
  mlir::MLIRContext context;
  TemporaryFolder folder;
  auto imported = frontend::importOnnx(context, folder.write("m.onnx", b.bytes()), options);
  ASSERT_TRUE(bool(imported)) << imported.error().message;
  std::string text;
  llvm::raw_string_ostream stream(text);
  imported->module->print(stream);
  EXPECT_THAT(stream.str(), HasSubstr("dense<0x4A800000>"));
}

/// A mask of ones is the same for all samples, and so are the positions that it counts.
TEST(Known, CumSumOfAHeldMask) {
  ModelBuilder b;
  b.input("x", {"batch", "3"});
  b.input("attention_mask", {"batch", "3"});
  b.output("y");
  b.ints("axis", {}, {1});
  ModelBuilder::attr(b.node("CumSum", {"attention_mask", "axis"}, {"positions"}), "exclusive",
                     int64_t(1));
  b.node("Add", {"x", "positions"}, {"y"});
  ModelRunner runner;
  runner.options.fix["attention_mask"] = "ones";
  EXPECT_THAT(runner.run(b), ElementsAre(0, 2, 4, 3, 5, 7));
}

/// A table of coordinates stays in parts; a dim in front renames those of the whole.
TEST(Known, CoordinatesMayGetADimInFront) {
  ModelBuilder b;
  b.input("x", {"batch", "1", "1", "2"});
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("size", {}, {12});
  b.ints("square", {2}, {12, 12});
  b.ints("front", {1}, {0});
  b.ints("last", {1}, {2});
  b.node("Range", {"zero", "size", "one"}, {"range"});
  for (const auto &[name, shape] :
       {std::pair("i", std::vector<int64_t>{12, 1}), std::pair("j", std::vector<int64_t>{1, 12})}) {
    std::string text = name;
    b.ints(text + "_shape", {2}, shape);
    b.node("Reshape", {"range", text + "_shape"}, {text + "_vector"});
    b.node("Expand", {text + "_vector", "square"}, {text + "_table"});
    b.node("Unsqueeze", {text + "_table", "last"}, {text});
  }
  ModelBuilder::attr(b.node("Concat", {"i", "j"}, {"pairs"}), "axis", int64_t(-1));
  b.node("Unsqueeze", {"pairs", "front"}, {"places"});
  ModelBuilder::attr(b.node("Cast", {"places"}, {"numbers"}), "to", int64_t(1));
  b.node("Add", {"numbers", "x"}, {"y"});
  std::vector<double> want;
  for (int batch = 0; batch < 2; ++batch)
    for (int i = 0; i < 12; ++i)
      for (int j = 0; j < 12; ++j)
        want.insert(want.end(), {2.0 * batch + i, 2.0 * batch + 1 + j});
  EXPECT_THAT(ModelRunner().run(b), ElementsAreArray(want));
}

/// Rounding up keeps a window that exceeds the input, as in EfficientNet's pooling.
TEST(Known, PoolingKeepsOneWindowLargerThanTheInput) {
  for (const char *type : {"AveragePool", "MaxPool"}) {
    ModelBuilder b;
    b.input("x", {"batch", "1", "2", "2"});
    b.output("y");
    onnx::NodeProto &pool = b.node(type, {"x"}, {"y"});
    ModelBuilder::attr(pool, "kernel_shape", std::vector<int64_t>{320, 320});
    ModelBuilder::attr(pool, "strides", std::vector<int64_t>{320, 320});
    ModelBuilder::attr(pool, "ceil_mode", int64_t(1));
    bool isMean = std::string(type) == "AveragePool";
    EXPECT_THAT(ModelRunner().run(b), ElementsAreArray(isMean ? std::vector<double>{1.5, 5.5}
                                                              : std::vector<double>{3, 7}));
  }
}

/// A table of positions that repeats along the batch, tiled over heads: only one sample's elements
/// are listed.
TEST(Known, ATileOfARepeatedTableListsItOnce) {
  ModelBuilder b;
  b.input("x", {"batch", "4", "300"});
  b.output("y");
  std::vector<int64_t> table;
  for (int64_t i = 0; i < 600; ++i)
    table.push_back(i * i % 7);
  b.ints("table", {1, 2, 300}, table);
  b.ints("zero", {1}, {0});
  b.ints("one", {1}, {1});
  b.ints("sizes", {2}, {2, 300});
  b.ints("repeats", {3}, {1, 2, 1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Slice", {"shape", "zero", "one"}, {"samples"});
  ModelBuilder::attr(b.node("Concat", {"samples", "sizes"}, {"target"}), "axis", int64_t(0));
  b.node("Expand", {"table", "target"}, {"expanded"});
  b.node("Tile", {"expanded", "repeats"}, {"tiled"}, "tile");
  ModelBuilder::attr(b.node("Cast", {"tiled"}, {"floats"}), "to", int64_t(1));
  b.node("Mul", {"x", "floats"}, {"y"});
  ModelRunner runner;
  std::vector<double> y = runner.run(b);
  for (int64_t i = 0; i < 2400; ++i)
    ASSERT_EQ(y[size_t(i)], double(i * table[size_t(i % 600)]));
}

/// y[i, j] = x[i, j] + table[j], where the table is repeated for each sample and then listed along
/// one dim with the samples.
ModelBuilder tableForEachSample(const std::vector<int64_t> &table) {
  int64_t size = int64_t(table.size());
  ModelBuilder b;
  b.input("x", {"batch", std::to_string(size)});
  b.output("y");
  b.ints("integers", {1, size}, table);
  ModelBuilder::attr(b.node("Cast", {"integers"}, {"table"}), "to", int64_t(1));
  b.ints("flat", {1}, {-1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Expand", {"table", "shape"}, {"wide"});
  b.node("Reshape", {"wide", "flat"}, {"list"});
  b.node("Reshape", {"x", "flat"}, {"elements"});
  b.node("Add", {"elements", "list"}, {"sum"});
  b.node("Reshape", {"sum", "shape"}, {"y"});
  return b;
}

TEST(Known, ATableRepeatedForEachSampleIsABroadcast) {
  ModelRunner runner;
  EXPECT_THAT(runner.run(tableForEachSample({1, 5, 2})), ElementsAre(1, 6, 4, 4, 9, 7));
  // Too long a list to be computed at import, for thousands of samples.
  std::vector<int64_t> table(300);
  std::vector<double> expected;
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = int64_t(i * i % 7);
  for (size_t i = 0; i < 2 * table.size(); ++i)
    expected.push_back(double(i) + double(table[i % table.size()]));
  EXPECT_THAT(runner.run(tableForEachSample(table)), ElementsAreArray(expected));
}

} // namespace
