//===- grouped_rows_test.cpp - Matmuls of sorted rows by their groups ------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

/// The nodes of torch's grouped_mm in files of transformers: x [batch, 2] is taken twice, once for
/// each of its `experts` [batch, 2], in the order of the experts. y [batch] is the sum of both
/// products with the weights [2, 2, 1] of the expert. `width`: that of a bin of torch.histc; 0.5
/// gives each of two experts a bin. `isBack`: the rows get back the order of the tokens.
ModelBuilder withGroups(float width, int64_t reverse = 0, bool isBack = true) {
  ModelBuilder b(18);
  b.input("x", {"batch", "2"});
  b.input("experts", {"batch", "2"}, /*isFloat=*/false);
  b.output("y");
  b.floats("weights", {2, 2, 1}, {1, 10, 100, 1000});
  b.floats("width", {}, {width});
  b.ints("zero", {}, {0});
  b.ints("one", {}, {1});
  b.ints("two", {}, {2});
  b.ints("first", {1}, {0});
  b.ints("last", {1}, {-1});
  b.ints("zeros", {2}, {0, 0});
  b.ints("pairs", {3}, {-1, 2, 1});
  b.node("Reshape", {"experts", "last"}, {"keys"});
  b.node("Shape", {"keys"}, {"all"});
  onnx::NodeProto &sort = b.node("TopK", {"keys", "all"}, {"sorted", "order"}, "sort");
  ModelBuilder::attr(sort, "largest", int64_t(0));
  // order / 2, rounded down for both signs.
  b.node("Less", {"order", "zero"}, {"is_negative"});
  b.node("Mod", {"order", "two"}, {"rest"});
  ModelBuilder::attr(b.node("Cast", {"rest"}, {"has_rest"}), "to", int64_t(9));
  b.node("And", {"is_negative", "has_rest"}, {"is_lower"});
  ModelBuilder::attr(b.node("Cast", {"is_lower"}, {"lower"}), "to", int64_t(7));
  b.node("Div", {"order", "two"}, {"quotient"});
  b.node("Sub", {"quotient", "lower"}, {"token"});
  b.node("Unsqueeze", {"token", "last"}, {"token_column"});
  b.node("GatherND", {"x", "token_column"}, {"rows"});
  // torch.histc of the sorted keys, and its sums.
  ModelBuilder::attr(b.node("Cast", {"sorted"}, {"sorted_f"}), "to", int64_t(1));
  b.node("Div", {"sorted_f", "width"}, {"bins_f"});
  ModelBuilder::attr(b.node("Cast", {"bins_f"}, {"bins"}), "to", int64_t(7));
  b.node("Clip", {"bins", "zero", "one"}, {"groups"});
  b.node("Shape", {"groups"}, {"groups_shape"});
  b.node("Expand", {"one", "groups_shape"}, {"ones"});
  ModelBuilder::attr(b.node("ScatterElements", {"zeros", "groups", "ones"}, {"counts"}),
                     "reduction", std::string("add"));
  ModelBuilder::attr(b.node("CumSum", {"counts", "zero"}, {"ends"}), "reverse", reverse);
  ModelBuilder::attr(b.node("Split", {"ends"}, {"end0", "end1"}), "num_outputs", int64_t(2));
  ModelBuilder::attr(b.node("Split", {"weights"}, {"weight0", "weight1"}), "num_outputs",
                     int64_t(2));
  for (const char *group : {"0", "1"}) {
    auto named = [&](const char *name) { return name + std::string(group); };
    b.node("Squeeze", {named("end"), "first"}, {named("limit")});
    b.node("Squeeze", {named("weight"), "first"}, {named("matrix")});
    b.node("Range", {*group == '0' ? "zero" : "limit0", named("limit"), "one"}, {named("range")},
           named("range"));
    b.node("Gather", {"rows", named("range")}, {named("part")});
    b.node("MatMul", {named("part"), named("matrix")}, {named("product")});
  }
  ModelBuilder::attr(b.node("Concat", {"product0", "product1"}, {"products"}), "axis", int64_t(0));
  // Back to the order of the tokens.
  b.node("Size", {"order"}, {"rows_number"});
  b.node("Range", {"zero", "rows_number", "one"}, {"numbers"});
  b.node("Expand", {"zero", "all"}, {"empty"});
  b.node("Unsqueeze", {"order", "last"}, {"order_column"});
  b.node("ScatterND", {"empty", "order_column", "numbers"}, {"places"});
  b.node("Unsqueeze", {"places", "last"}, {"place_column"});
  b.node("GatherND", {"products", "place_column"}, {"back"});
  b.node("Reshape", {isBack ? "back" : "products", "pairs"}, {"choices"});
  b.ints("sums", {2}, {1, 2});
  ModelBuilder::attr(b.node("ReduceSum", {"choices", "sums"}, {"y"}), "keepdims", int64_t(0));
  return b;
}

struct Runner : ModelRunner {
  Runner() {
    options.batch = 3;
    inputs["experts"] = {1, 0, 0, 0, 1, 1};
  }
};

TEST(GroupedRows, EachRowTakesTheMatrixOfItsGroup) {
  Runner made;
  // x is [0, 1], [2, 3], [4, 5]: products with [1, 10] are 10, 32, 54.
  EXPECT_THAT(made.run(withGroups(0.5)), ElementsAre(10 + 1000, 32 + 32, 5400 + 5400));
  EXPECT_EQ(made.count("topk"), 0u);
  EXPECT_EQ(made.count("iota"), 0u);
  EXPECT_EQ(made.count("gather"), 1u); // of the matrices
  EXPECT_THAT(made.model->warnings, Each(Not(HasSubstr("is not used"))));
}

/// Bins of another width are other groups, and sums from the end are no ends of groups.
TEST(GroupedRows, OtherEndsAreRefused) {
  Runner made;
  for (const ModelBuilder &b : {withGroups(2), withGroups(0.5, /*reverse=*/1)})
    EXPECT_THAT(importError(b.bytes(), made.options), HasSubstr("node 'range0' (Range)"));
}

/// Pairs of sorted rows are no choices of a token.
TEST(GroupedRows, SortedRowsInPairsStaySorted) {
  Runner made;
  EXPECT_THAT(made.run(withGroups(0.5, 0, /*isBack=*/false)),
              ElementsAre(10 + 32, 32 + 1000, 5400 + 5400));
  EXPECT_EQ(made.count("topk"), 1u);
}

/// Nodes without the inputs of their op are refused, and not read.
TEST(GroupedRows, NodesWithTooFewInputsAreRefused) {
  Runner made;
  for (const char *type : {"Div", "MatMul", "Gather", "Range", "Clip"}) {
    ModelBuilder b = withGroups(0.5);
    for (onnx::NodeProto &node : *b.proto.mutable_graph()->mutable_node())
      if (node.op_type() == type)
        while (node.input_size() > 1)
          node.mutable_input()->RemoveLast();
    EXPECT_NE(importError(b.bytes(), made.options), "") << type;
  }
}

} // namespace
