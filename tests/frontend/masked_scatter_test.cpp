//===- masked_scatter_test.cpp - Features put at masked places -------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// x [batch, 3, 2], and where tokens [batch, 3] are 9 the rows of features [batch, 2, 2]. The nodes
/// are those of torch.onnx for masked_scatter, or, without `counts`, for `x[mask] = features`.
ModelBuilder withFeatures(bool counts) {
  ModelBuilder b(18);
  b.input("x", {"batch", "3", "2"});
  b.input("tokens", {"batch", "3"}, /*isFloat=*/false);
  b.input("features", {"batch", "2", "2"});
  b.output("y");
  b.ints("nine", {}, {9});
  b.ints("zero", {1}, {0});
  b.ints("last", {1}, {-1});
  b.ints("rows", {2}, {-1, 2});
  b.node("Equal", {"tokens", "nine"}, {"is_picture"});
  b.node("Unsqueeze", {"is_picture", "last"}, {"column"});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Expand", {"column", "shape"}, {"mask"});
  b.node("NonZero", {counts ? "mask" : "is_picture"}, {"found"});
  ModelBuilder::attr(b.node("Transpose", {"found"}, {"places"}), "perm",
                     std::vector<int64_t>{1, 0});
  b.node("Reshape", {"features", counts ? "last" : "rows"}, {"list"});
  if (counts) {
    b.node("Shape", {"places"}, {"found_shape"});
    b.node("Gather", {"found_shape", "zero"}, {"count"});
    b.node("Slice", {"list", "zero", "count", "zero"}, {"updates"});
  }
  b.node("ScatterND", {"x", "places", counts ? "updates" : "list"}, {"y"}, "fuse");
  return b;
}

TEST(MaskedScatter, EachSampleTakesItsOwnFeatures) {
  for (bool counts : {true, false}) {
    ModelRunner runner;
    runner.inputs["tokens"] = {9, 4, 9, 9, 9, 5};
    runner.inputs["features"] = {20, 21, 22, 23, 24, 25, 26, 27};
    EXPECT_THAT(runner.run(withFeatures(counts)),
                ElementsAre(20, 21, 2, 3, 22, 23, 24, 25, 26, 27, 10, 11));
    EXPECT_THAT(runner.model->warnings,
                Contains(HasSubstr("in each sample the first ones of its own 2")));
  }
}

TEST(MaskedScatter, TheFeaturesMustBeThoseOfSamples) {
  ModelBuilder b = withFeatures(true);
  *b.proto.mutable_graph()->mutable_input(2)->mutable_type()->mutable_tensor_type() =
      b.proto.graph().input(0).type().tensor_type();
  b.proto.mutable_graph()
      ->mutable_input(2)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(2)
      ->set_dim_value(3);
  EXPECT_THAT(importError(b.bytes()),
              HasSubstr("node 'fuse' (MaskedScatter): puts elements of [9*batch] at places of "
                        "[batch, 3, 2]; expected rows of 2 for each sample"));
}

/// Intersections of boxes in torchvision: area[mask] = (high[mask] - low[mask]) * 2, as written by
/// its exporter, with the list expanded to its own length. `selections`: 3 without an optimizer.
/// `isExpanded`: the mask of the assignment is expanded to the shape of the tensor.
ModelBuilder withAreas(int selections, bool isExpanded = false) {
  ModelBuilder b;
  b.input("low", {"batch", "3"});
  b.input("high", {"batch", "3"});
  b.output("y");
  b.floats("two", {}, {2});
  b.floats("zero", {}, {0});
  b.ints("list", {1}, {-1});
  b.node("Greater", {"high", "low"}, {"mask"});
  b.node("Mul", {"low", "zero"}, {"zeros"});
  ModelBuilder::attr(b.node("Shape", {"zeros"}, {"shape"}), "start", int64_t(0));
  if (isExpanded)
    b.node("Expand", {"mask", "shape"}, {"own_mask"});
  for (int i = 0; i < selections; ++i) {
    std::string number = std::to_string(i);
    const bool isOwn = isExpanded && i == 2;
    b.node("NonZero", {isOwn ? "own_mask" : "mask"}, {"found" + number});
    ModelBuilder::attr(b.node("Transpose", {"found" + number}, {"places" + number}), "perm",
                       std::vector<int64_t>{1, 0});
  }
  b.node("GatherND", {"high", "places0"}, {"a"});
  b.node("GatherND", {"low", selections > 1 ? "places1" : "places0"}, {"b"});
  b.node("Sub", {"a", "b"}, {"difference"});
  b.node("Mul", {"difference", "two"}, {"twice"});
  b.node("Reshape", {"twice", "list"}, {isExpanded ? "all" : "updates"});
  if (isExpanded) { // as in a file of the older exporter, which counts the places
    b.ints("first", {1}, {0});
    b.node("Reshape", {"mask", "list"}, {"flat"});
    ModelBuilder::attr(b.node("Cast", {"flat"}, {"ones"}), "to", int64_t(7));
    b.node("ReduceSum", {"ones", "first"}, {"count"});
    b.node("Slice", {"all", "first", "count", "first"}, {"updates"});
  }
  b.node("ScatterND", {"zeros", selections > 2 ? "places2" : "places0", "updates"}, {"y"},
         "assign");
  return b;
}

TEST(MaskedAssign, ComputesForAllPlaces) {
  for (auto [selections, isExpanded] : {std::pair(1, false), {3, false}, {3, true}}) {
    ModelRunner runner;
    runner.inputs["low"] = {0, 5, 1, 7, 2, 2};
    runner.inputs["high"] = {3, 4, 1, 9, 1, 8};
    EXPECT_THAT(runner.run(withAreas(selections, isExpanded)), ElementsAre(6, 0, 0, 4, 0, 12));
  }
}

/// A slice of the columns is none of the list: x[mask] = y[mask][:, 1:].
TEST(MaskedAssign, LeavesOutNoColumns) {
  ModelBuilder b;
  b.input("x", {"batch", "3", "1"});
  b.input("y", {"batch", "3", "2"});
  b.input("mask", {"batch", "3"}, /*isFloat=*/false);
  b.output("z");
  b.ints("zero", {1}, {0});
  b.ints("one", {1}, {1});
  b.ints("two", {1}, {2});
  b.node("Greater", {"mask", "zero"}, {"chosen"});
  b.node("NonZero", {"chosen"}, {"found"});
  ModelBuilder::attr(b.node("Transpose", {"found"}, {"places"}), "perm",
                     std::vector<int64_t>{1, 0});
  b.node("GatherND", {"y", "places"}, {"rows"}, "take");
  b.node("Slice", {"rows", "one", "two", "one"}, {"updates"});
  b.node("ScatterND", {"x", "places", "updates"}, {"z"}, "assign");
  EXPECT_THAT(importError(b.bytes()), HasSubstr("node 'take' (GatherND): reads [batch, 3, 2]"));
}

} // namespace
