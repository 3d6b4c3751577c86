//===- places_test.cpp - Samples taken by their places in the batch --------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// Chosen and rejected samples in one tensor, cut by the batch size of the export: the parts are
/// the two batches. Example: torch.split(torch.cat([x, -x]), x.shape[0]) in the older exporter.
TEST(Places, EqualPartsOfSeveralBatchesAreBatches) {
  ModelBuilder b;
  b.input("x", {"batch", "1"});
  b.output("y");
  b.ints("sizes", {2}, {4, 4});
  b.node("Neg", {"x"}, {"negative"});
  ModelBuilder::attr(b.node("Concat", {"x", "negative"}, {"both"}), "axis", int64_t(0));
  b.node("Split", {"both", "sizes"}, {"chosen", "rejected"}, "halves");
  b.node("Sub", {"chosen", "rejected"}, {"y"});
  ModelRunner runner;
  runner.options.batch = 3;
  EXPECT_THAT(runner.run(b), ElementsAre(0, 2, 4));
  EXPECT_THAT(runner.model->warnings,
              Contains(HasSubstr("'halves' splits into parts of the 4 samples of the export")));
}

TEST(Places, SizesThatFitNoBatchAreRefused) {
  ModelBuilder b;
  b.input("x", {"batch", "1"});
  b.output("y");
  b.ints("sizes", {2}, {1, 3});
  b.node("Split", {"x", "sizes"}, {"y", "z"}, "halves");
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("into 2 parts of 4 in all"), HasSubstr("x.split([a.size(0)")));
}

/// x.split(counts), the tokens of each expert.
TEST(Places, PartsWhoseSizesAreDataAreRefused) {
  ModelBuilder b;
  b.input("x", {"batch", "1"});
  b.input("counts", {"batch"}, false);
  b.output("y");
  b.node("Split", {"x", "counts"}, {"y", "z"}, "parts");
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("'parts'"), HasSubstr("sizes are computed from data")));
}

/// x[:n / 2], x[::2] and x[1:] of a batch of n.
TEST(Places, PartsOfTheBatchAreRefused) {
  for (const std::string part : {"half", "even", "rest"}) {
    ModelBuilder b;
    b.input("x", {"batch", "4"});
    b.output("y");
    b.ints("zero", {1}, {0});
    b.ints("one", {1}, {1});
    b.ints("two", {1}, {2});
    b.ints("most", {1}, {int64_t(1) << 62});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"n"}), "end", int64_t(1));
    b.node("Div", {"n", "two"}, {"middle"});
    b.node("Slice",
           {"x", part == "rest" ? "one" : "zero", part == "half" ? "middle" : "most", "zero",
            part == "even" ? "two" : "one"},
           {"y"}, part);
    EXPECT_THAT(importError(b.bytes()),
                AllOf(HasSubstr("node '" + part + "' (Slice)"),
                      HasSubstr("takes samples of the batch by their places")));
  }
}

/// x.view(-1, 2, 4): pairs of neighbours.
TEST(Places, GroupsOfSamplesAreRefused) {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.output("y");
  b.ints("shape", {3}, {-1, 2, 4});
  b.node("Reshape", {"x", "shape"}, {"y"}, "pairs");
  EXPECT_THAT(importError(b.bytes()),
              AllOf(HasSubstr("node 'pairs'"), HasSubstr("takes samples of the batch by their")));
}

} // namespace
