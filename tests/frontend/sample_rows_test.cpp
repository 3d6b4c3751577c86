//===- sample_rows_test.cpp - Rows chosen in each sample -------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// x [batch, 3, 2] at x[arange(batch), i], as PyTorch's older exporter writes it: the rows of all
/// samples in one list, and the index i + arange(batch) * `stride`. `i` has the dims `dims`.
ModelBuilder flatRows(const std::vector<std::string> &dims, int64_t stride = 3) {
  ModelBuilder b(18);
  b.input("x", {"batch", "3", "2"});
  b.input("i", dims, /*isFloat=*/false);
  b.output("y");
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("stride", {1}, {stride});
  b.ints("behind", {1}, {1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"samples"});
  b.node("Range", {"zero", "samples", "one"}, {"numbers"});
  b.node("Mul", {"numbers", "stride"}, {"first"});
  if (dims.size() > 1)
    b.node("Unsqueeze", {"first", "behind"}, {"column"});
  b.node("Add", {"i", dims.size() > 1 ? "column" : "first"}, {"flat"}, "number");
  ModelBuilder::attr(b.node("Flatten", {"x"}, {"rows"}), "axis", int64_t(2));
  b.node("Gather", {"rows", "flat"}, {"y"});
  return b;
}

TEST(SampleRows, AFlatIndexChoosesWithinTheSample) {
  ModelRunner runner;
  runner.options.batch = 3;
  runner.inputs["i"] = {2, 0, 1};
  EXPECT_THAT(runner.run(flatRows({"batch"})), ElementsAre(4, 5, 6, 7, 14, 15));
  EXPECT_EQ(runner.count("iota"), 0u);
}

TEST(SampleRows, SeveralRowsOfEachSample) {
  ModelRunner runner;
  runner.inputs["i"] = {2, 0, 1, 1};
  EXPECT_THAT(runner.run(flatRows({"batch", "2"})), ElementsAre(4, 5, 0, 1, 8, 9, 8, 9));
  EXPECT_THAT(runner.shape, ElementsAre(2, 2, 2));
}

/// One list of the rows of all samples, as graphs of nearest neighbours are gathered:
/// x.view(batch * 3, 2)[(i + 3 * arange(batch)[:, None]).view(-1)].
TEST(SampleRows, AListOfTheRowsOfAllSamples) {
  ModelBuilder b = flatRows({"batch", "2"});
  b.proto.mutable_graph()->mutable_node()->RemoveLast();
  b.ints("all", {1}, {-1});
  b.node("Reshape", {"flat", "all"}, {"list"});
  b.node("Gather", {"rows", "list"}, {"y"});
  ModelRunner runner;
  runner.inputs["i"] = {2, 0, 1, 1};
  EXPECT_THAT(runner.run(b), ElementsAre(4, 5, 0, 1, 8, 9, 8, 9));
  EXPECT_THAT(runner.shape, ElementsAre(4, 2));
  EXPECT_EQ(runner.count("iota"), 0u);
}

/// x [3, batch, 2] at x[i, arange(batch)]: positions come first, as in a recurrent layer. PyTorch's
/// older exporter merges the dims into one, its newer one lists coordinates.
TEST(SampleRows, PositionsBeforeTheSamples) {
  for (bool isFlat : {true, false}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "3", "2"});
    b.input("i", {"batch"}, /*isFloat=*/false);
    b.output("y");
    ModelBuilder::attr(b.node("Transpose", {"x"}, {"steps"}), "perm",
                       std::vector<int64_t>{1, 0, 2});
    b.ints("zero", {}, {0});
    b.ints("one", {}, {1});
    b.ints("behind", {1}, {1});
    b.node("Shape", {"x"}, {"shape"});
    b.node("Gather", {"shape", "zero"}, {"samples"});
    b.node("Range", {"zero", "samples", "one"}, {"numbers"});
    if (isFlat) {
      b.node("Mul", {"i", "samples"}, {"first"});
      b.node("Add", {"numbers", "first"}, {"flat"});
      ModelBuilder::attr(b.node("Flatten", {"steps"}, {"rows"}), "axis", int64_t(2));
      b.node("Gather", {"rows", "flat"}, {"y"});
    } else {
      b.node("Unsqueeze", {"i", "behind"}, {"place"});
      b.node("Unsqueeze", {"numbers", "behind"}, {"sample"});
      ModelBuilder::attr(b.node("Concat", {"place", "sample"}, {"indices"}), "axis", int64_t(-1));
      b.node("GatherND", {"steps", "indices"}, {"y"});
    }
    ModelRunner runner;
    runner.options.batch = 3;
    runner.inputs["i"] = {2, 0, 1};
    EXPECT_THAT(runner.run(b), ElementsAre(4, 5, 6, 7, 14, 15));
    EXPECT_EQ(runner.count("iota"), 0u);
  }
}

/// Another stride reaches into other samples.
TEST(SampleRows, TheStrideIsTheNumberOfRows) {
  EXPECT_THAT(importError(flatRows({"batch"}, 2).bytes()),
              HasSubstr("node 'number' uses a table with an entry for each sample"));
}

} // namespace
