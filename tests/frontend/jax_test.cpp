//===- jax_test.cpp - Ops and loops as jax2onnx writes them ----------------===//

#include "tests/frontend/RolesFixture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

namespace {

/// jnp.take_along_axis(x, labels[..., None], -1): one element of each row, at rank 2 and at rank 3.
TEST(JaxTakeAlongAxis, IsAGatherAlongTheLastDim) {
  for (int64_t batchDims : {1, 2}) {
    ModelBuilder b;
    std::vector<std::string> rows = {"batch"};
    if (batchDims == 2)
      rows.push_back("2");
    std::vector<std::string> dims = rows;
    dims.push_back("3");
    b.input("x", dims);
    b.input("labels", rows, false);
    b.output("y");
    b.ints("last", {1}, {batchDims});
    b.ints("both", {2}, {batchDims, batchDims + 1});
    b.node("Unsqueeze", {"labels", "both"}, {"i"});
    ModelBuilder::attr(b.node("GatherND", {"x", "i"}, {"chosen"}), "batch_dims", batchDims);
    b.node("Squeeze", {"chosen", "last"}, {"y"});
    ModelRunner runner;
    std::vector<double> labels = {2, 0, 1, 2}, chosen = {2, 3, 7, 11};
    const size_t numRows = batchDims == 1 ? 2 : 4;
    labels.resize(numRows);
    chosen.resize(numRows);
    runner.inputs["labels"] = labels;
    EXPECT_EQ(runner.run(b), chosen);
    ASSERT_EQ(runner.count("gather_elements"), 1u);
    runner.function().walk([&](mlir::Operation *op) {
      if (op->getName().stripDialect() != "gather_elements")
        return;
      auto table = mlir::cast<mlir::RankedTensorType>(op->getOperand(0).getType());
      EXPECT_EQ(table.getRank(), batchDims + 1);
    });
  }
}

/// jax.nn.one_hot of indices that a top_k returned, as i32: they are never negative.
TEST(JaxOneHot, OfATopKReadsNoNegativeIndices) {
  ModelBuilder b;
  b.input("x", {"batch", "3"});
  b.output("y");
  b.ints("k", {1}, {1});
  b.ints("depth", {}, {3});
  b.floats("values", {2}, {0, 1});
  b.node("TopK", {"x", "k"}, {"v", "i"});
  ModelBuilder::attr(b.node("Cast", {"i"}, {"narrow"}), "to", int64_t(onnx::TensorProto::INT32));
  ModelBuilder::attr(b.node("Cast", {"narrow"}, {"wide"}), "to", int64_t(onnx::TensorProto::INT64));
  b.node("OneHot", {"wide", "depth", "values"}, {"y"});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_EQ(runner.count("or"), 0u);
}

/// x[:, 0] of a file of four samples: jax.lax.slice has an end for each dim.
TEST(JaxSlice, KeepsTheWholeBatchOfTheExport) {
  ModelBuilder b;
  b.input("x", {"4", "2"});
  b.output("y");
  b.ints("starts", {2}, {0, 0});
  b.ints("ends", {2}, {4, 1});
  b.ints("axes", {2}, {0, 1});
  b.node("Slice", {"x", "starts", "ends", "axes"}, {"y"});
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(0, 2));
}

/// The causal mask of jax.nn.dot_product_attention is a constant of booleans for each head. The sum
/// of the kept elements of x, all 1, with True for kept and for hidden pairs.
TEST(JaxMask, OfEachHeadIsOneOfPositions) {
  constexpr int64_t kHeads = 2, kPositions = 300;
  for (bool keeps : {true, false}) {
    ModelBuilder b;
    b.input("x", {"batch", "2", "300", "300"});
    b.output("y");
    std::string table;
    for (int64_t i = 0; i < kHeads * kPositions * kPositions; ++i)
      table += char((i % kPositions <= i / kPositions % kPositions) == keeps);
    onnx::TensorProto &mask = *b.proto.mutable_graph()->add_initializer();
    mask.set_name("mask");
    mask.set_data_type(onnx::TensorProto::BOOL);
    for (int64_t size : {int64_t(1), kHeads, kPositions, kPositions})
      mask.add_dims(size);
    mask.set_raw_data(table);
    b.floats("zero", {}, {0});
    b.ints("dims", {3}, {1, 2, 3});
    b.node("Where",
           keeps ? std::vector<std::string>{"mask", "x", "zero"}
                 : std::vector<std::string>{"mask", "zero", "x"},
           {"kept"});
    ModelBuilder::attr(b.node("ReduceSum", {"kept", "dims"}, {"y"}), "keepdims", int64_t(0));
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs["x"] = std::vector<double>(size_t(kHeads * kPositions * kPositions), 1);
    EXPECT_THAT(runner.run(b), ElementsAre(kHeads * kPositions * (kPositions + 1) / 2));
    EXPECT_GE(runner.count("compare"), 1u);
    EXPECT_THAT(rolesOf(b).states, IsEmpty());
  }
}

/// Two calls of one layer, of which the second has tensors of its own with the same data.
TEST(JaxCalls, OfOneLayerTrainOneParameter) {
  std::vector<float> weights, zeros(8, 0);
  for (int i = 0; i < 64; ++i)
    weights.push_back(float(i % 11) / 8);
  auto called = [&](const std::string &producer, float changed) {
    ModelBuilder b;
    b.proto.set_producer_name(producer);
    b.input("x", {"batch", "8"});
    b.output("y");
    std::string value = "x";
    for (const std::string call : {"0", "1"}) {
      b.floats("kernel2d_" + call, {8, 8}, weights);
      std::vector<float> biases = zeros;
      biases.back() += call == "1" ? changed : 0;
      b.floats("bias_vec_" + call, {8}, biases);
      const std::string next = call == "1" ? "y" : "h";
      b.node("Gemm", {value, "kernel2d_" + call, "bias_vec_" + call}, {next});
      value = next;
    }
    return rolesOf(b);
  };
  Roles roles = called("jax2onnx", 0);
  EXPECT_THAT(roles.parameters, UnorderedElementsAre("kernel2d_0", "bias_vec_0"));
  EXPECT_THAT(roles.warnings, ElementsAre(HasSubstr("2 tensors are one parameter with those of the "
                                                    "first call, such as 'kernel2d_1' with "
                                                    "'kernel2d_0'")));
  // Another bias is another layer, and other exporters store each parameter once.
  EXPECT_EQ(called("jax2onnx", 1).parameters.size(), 4u);
  EXPECT_EQ(called("pytorch", 0).parameters.size(), 4u);
}

/// A loop of two steps, h = h w[i], that carries w or another value of its shape. Weights of a
/// `lax.scan` over layers are such a state.
ModelBuilder scanOfLayers(const std::string &returned) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.ints("count", {}, {2});
  b.ints("yes_int", {}, {1});
  ModelBuilder::attr(b.node("Cast", {"yes_int"}, {"yes"}), "to", int64_t(onnx::TensorProto::BOOL));
  b.floats("const_0", {2, 2, 2}, {1, 2, 0, 1, 3, 0, 0, 3});
  onnx::NodeProto &loop = b.node("Loop", {"count", "yes", "x", "const_0"}, {"y", "w_last"}, "scan");
  graphAttr(loop, "body", {"i", "go", "h", "w"}, {"go", "next", returned},
            {makeNode("Gather", {"w", "i"}, {"layer"}),
             makeNode("MatMul", {"h", "layer"}, {"next"}), makeNode("Identity", {"w"}, {"same"}),
             makeNode("Neg", {"w"}, {"other"})});
  return b;
}

TEST(JaxScan, CarriedWeightsAreParameters) {
  Roles roles = rolesOf(scanOfLayers("same"));
  EXPECT_THAT(roles.parameters, ElementsAre("const_0"));
  EXPECT_THAT(roles.warnings, IsEmpty());
  ModelRunner runner;
  // [0, 1] and [2, 3], times [[1, 2], [0, 1]] and 3.
  EXPECT_THAT(runner.run(scanOfLayers("same")), ElementsAre(0, 3, 6, 21));
}

/// A state that changes holds its first value in no later step, as h does.
TEST(JaxScan, OtherStatesAreNoneAndAreNamedIfLarge) {
  Roles roles = rolesOf(scanOfLayers("other"));
  EXPECT_THAT(roles.constants, ElementsAre("const_0"));
  EXPECT_THAT(roles.warnings,
              Contains(HasSubstr("'const_0', with 8 numbers, is not trained, and all parameters "
                                 "have 0: a name of the exporter's own, and no reader that takes "
                                 "weights; --parameter 'const_0' trains it")));
}

} // namespace
