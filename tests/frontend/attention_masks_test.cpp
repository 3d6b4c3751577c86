//===- attention_masks_test.cpp - Masks of exporters become operands -------===//
//
// Attention as exporters and their fused ops write it, with a mask that is an input. It must become
// one attention with the model's number of key heads and the mask as operand, and no tensor over
// queries and keys.
//
//===----------------------------------------------------------------------===//

#include "tests/frontend/ModelBuilder.h"
#include "tools/driver/Context.h"
#include "tools/tbc/CheckCommand.h"

#include "ir/Attention.h"
#include "passes/raise/RaiseComposites.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <functional>

using namespace mlir;
using namespace tbc;
using test::ModelBuilder;
using ::testing::HasSubstr;

namespace {

constexpr int64_t kSeq = 6, kWidth = 8;

/// The mask attributes of an attention.
struct Expected {
  bool causal = false, keyMask = false, segments = false, ordered = false;
  std::string hiddenRows = "zero";
  int64_t keyHeads = 2;
};

/// q, k and v of x[batch, seq, 8] by projections, with 2 query heads of 4; and a mask.
ModelBuilder withProjections(int64_t keyColumns = kWidth, const std::string &mask = "mask",
                             std::vector<std::string> maskDims = {"batch", "seq"}) {
  ModelBuilder b(23);
  b.input("x", {"batch", "seq", "8"});
  b.input(mask, maskDims, false);
  b.output("y");
  for (auto [name, columns] :
       {std::pair("q", kWidth), std::pair("k", keyColumns), std::pair("v", keyColumns)}) {
    b.floats(std::string(name) + "_weight", {kWidth, columns},
             std::vector<float>(kWidth * columns, 0.5f));
    b.node("MatMul", {"x", std::string(name) + "_weight"}, {name});
  }
  return b;
}

onnx::NodeProto &fused(ModelBuilder &b, const std::string &type,
                       const std::vector<std::string> &inputs) {
  onnx::NodeProto &node = b.node(type, inputs, {"y"}, "fused");
  node.set_domain("com.microsoft");
  return node;
}

frontend::ImportOptions masked() {
  frontend::ImportOptions options;
  options.seq = kSeq;
  options.fix = {{"mask", "input"}};
  return options;
}

void expectAttention(const ModelBuilder &b, const Expected &expected) {
  auto context = driver::makeContext();
  test::TemporaryFolder folder;
  auto model = frontend::importOnnx(*context, folder.write("m.onnx", b.bytes()), masked());
  ASSERT_TRUE(bool(model)) << model.error().message;
  auto function = *model->module->getOps<func::FuncOp>().begin();
  ASSERT_TRUE(succeeded(raiseComposites(function)));
  auto attentions = function.getOps<AttentionOp>();
  ASSERT_EQ(llvm::range_size(attentions), 1);
  AttentionOp attention = *attentions.begin();
  EXPECT_EQ(attention.getCausal(), expected.causal);
  EXPECT_EQ(attention.getKeyMask(), expected.keyMask);
  EXPECT_EQ(attention.getSegments(), expected.segments);
  EXPECT_EQ(attention.getOrdered(), expected.ordered);
  EXPECT_EQ(attention.getHiddenRows().str(), expected.hiddenRows);
  EXPECT_EQ(cast<RankedTensorType>(attention.getKey().getType()).getDimSize(1), expected.keyHeads);
  for (Operation &op : function.getBody().front())
    for (Type type : op.getResultTypes())
      EXPECT_LE(llvm::count(cast<RankedTensorType>(type).getShape(), kSeq), 1)
          << op.getName().getStringRef().str();
}

void setHeads(onnx::NodeProto &node, const std::string &name, int64_t heads) {
  ModelBuilder::attr(node, name, heads);
}

onnx::NodeProto &standard(ModelBuilder &b, const std::vector<std::string> &inputs) {
  onnx::NodeProto &node = b.node("Attention", inputs, {"y"}, "attention");
  setHeads(node, "q_num_heads", 2);
  setHeads(node, "kv_num_heads", 2);
  return node;
}

TEST(AttentionMasks, OfTheStandardOp) {
  ModelBuilder b = withProjections();
  ModelBuilder::attr(b.node("Cast", {"mask"}, {"keys"}), "to", int64_t(9));
  b.ints("axes", {2}, {1, 2});
  b.node("Unsqueeze", {"keys", "axes"}, {"keys4"});
  ModelBuilder::attr(standard(b, {"q", "k", "v", "keys4"}), "is_causal", int64_t(1));
  expectAttention(b, {true, true});
}

TEST(AttentionMasks, LengthsOfTheStandardOp) {
  ModelBuilder b = withProjections(kWidth, "mask", {"batch"});
  standard(b, {"q", "k", "v", "", "", "", "mask"});
  expectAttention(b, {false, true});
  // The last query of a causal sample attends up to its last key.
  ModelBuilder causal = withProjections(kWidth, "mask", {"batch"});
  ModelBuilder::attr(standard(causal, {"q", "k", "v", "", "", "", "mask"}), "is_causal",
                     int64_t(1));
  expectAttention(causal, {false, true, false, true});
}

TEST(AttentionMasks, OfMultiHeadAttention) {
  ModelBuilder byKey = withProjections();
  setHeads(fused(byKey, "MultiHeadAttention", {"q", "k", "v", "", "mask"}), "num_heads", 2);
  expectAttention(byKey, {false, true});
  ModelBuilder byLength = withProjections(kWidth, "mask", {"batch"});
  setHeads(fused(byLength, "MultiHeadAttention", {"q", "k", "v", "", "mask"}), "num_heads", 2);
  expectAttention(byLength, {false, true});
}

TEST(AttentionMasks, OfMicrosoftsAttention) {
  ModelBuilder b = withProjections();
  b.floats("weights", {kWidth, 3 * kWidth}, std::vector<float>(3 * kWidth * kWidth, 0.5f));
  onnx::NodeProto &node = fused(b, "Attention", {"x", "weights", "", "mask"});
  setHeads(node, "num_heads", 2);
  ModelBuilder::attr(node, "unidirectional", int64_t(1));
  expectAttention(b, {true, true});
}

TEST(AttentionMasks, LengthsOfGroupQueryAttention) {
  ModelBuilder b = withProjections(kWidth / 2, "mask", {"batch", "1"});
  onnx::NodeProto &node = fused(b, "GroupQueryAttention", {"q", "k", "v", "", "", "mask"});
  setHeads(node, "num_heads", 2);
  setHeads(node, "kv_num_heads", 1);
  expectAttention(b, {true, true, false, false, "zero", 1});
}

/// Softmax(q k^T / 2 + `bias`) v, as both exporters decompose it.
void decomposed(ModelBuilder &b, const std::string &bias, const std::string &function = "") {
  b.ints("split", {4}, {0, 0, 2, 4});
  for (const std::string name : {"q", "k", "v"}) {
    b.node("Reshape", {name, "split"}, {name + "4"});
    ModelBuilder::attr(b.node("Transpose", {name + "4"}, {name + "h"}), "perm",
                       name == "k" ? std::vector<int64_t>{0, 2, 3, 1}
                                   : std::vector<int64_t>{0, 2, 1, 3});
  }
  b.floats("half", {}, {0.5f});
  b.node("MatMul", {"qh", "kh"}, {"products"});
  b.node("Mul", {"products", "half"}, {"scaled"});
  b.node("Add", {"scaled", bias}, {"masked"});
  if (!function.empty())
    b.node(function, {"masked"}, {"scores"});
  ModelBuilder::attr(b.node("Softmax", {function.empty() ? "masked" : "scores"}, {"weights"}),
                     "axis", int64_t(-1));
  b.node("MatMul", {"weights", "vh"}, {"y"}, "attended");
}

/// The extended mask of BERT: (1 - mask[:, None, None, :]) * `number`. Example: mask 0 and number
/// -20000 add -20000.
void extendedMask(ModelBuilder &b, float number) {
  b.ints("axes", {2}, {1, 2});
  b.node("Unsqueeze", {"mask", "axes"}, {"mask4"});
  ModelBuilder::attr(b.node("Cast", {"mask4"}, {"maskf"}), "to", int64_t(1));
  b.floats("one", {}, {1.0f});
  b.floats("number", {}, {number});
  b.node("Sub", {"one", "maskf"}, {"inverted"});
  b.node("Mul", {"inverted", "number"}, {"bias"});
}

TEST(AttentionMasks, ExtendedMaskOfBert) {
  ModelBuilder b = withProjections();
  extendedMask(b, -3.40282347e38f);
  decomposed(b, "bias");
  expectAttention(b, {false, true, false, false, "mean"});
  // As BERT was written, in f32 and rounded to bf16, and a larger one.
  for (float number : {-10000.0f, -9984.0f, -20000.0f}) {
    ModelBuilder moderate = withProjections();
    extendedMask(moderate, number);
    decomposed(moderate, "bias");
    expectAttention(moderate, {false, true, false, false, "scores"});
  }
}

TEST(AttentionMasks, DocumentsOfAPackedSequence) {
  ModelBuilder b = withProjections();
  b.ints("axis1", {1}, {1});
  b.ints("axis2", {1}, {2});
  b.node("Unsqueeze", {"mask", "axis1"}, {"atKey"});
  b.node("Unsqueeze", {"mask", "axis2"}, {"atQuery"});
  b.node("Equal", {"atQuery", "atKey"}, {"same"});
  b.node("Shape", {"same"}, {"shape"});
  b.node("ConstantOfShape", {"shape"}, {"zeros"});
  b.floats("oneElement", {}, {1.0f});
  b.node("Add", {"zeros", "oneElement"}, {"ones"});
  b.node("Trilu", {"ones"}, {"lower"});
  ModelBuilder::attr(b.proto.mutable_graph()->mutable_node()->at(b.proto.graph().node_size() - 1),
                     "upper", int64_t(0));
  ModelBuilder::attr(b.node("Cast", {"lower"}, {"past"}), "to", int64_t(9));
  b.node("And", {"same", "past"}, {"kept"});
  b.floats("zero", {}, {0.0f});
  b.floats("lowest", {}, {-3.40282347e38f});
  b.node("Where", {"kept", "zero", "lowest"}, {"bias3"});
  b.node("Unsqueeze", {"bias3", "axis1"}, {"bias"});
  decomposed(b, "bias");
  expectAttention(b, {true, false, true, false, "mean"});
}

TEST(AttentionMasks, ABiasIsAnOperand) {
  ModelBuilder b = withProjections();
  b.input("position_bias", {"1", "2", "seq", "seq"});
  decomposed(b, "position_bias");
  test::TemporaryFolder folder;
  auto report = cli::checkModel(folder.write("m.onnx", b.bytes()), masked());
  ASSERT_TRUE(bool(report)) << report.error().message;
  EXPECT_EQ(report->composites.at("attention"), 1);
  EXPECT_EQ(report->composites.count("softmax"), 0u);
}

TEST(AttentionMasks, CheckSaysWhyOneIsNotRaised) {
  ModelBuilder b = withProjections();
  b.input("position_bias", {"1", "2", "seq", "seq"});
  decomposed(b, "position_bias", "Sin");
  test::TemporaryFolder folder;
  auto report = cli::checkModel(folder.write("m.onnx", b.bytes()), masked());
  ASSERT_TRUE(bool(report)) << report.error().message;
  EXPECT_EQ(report->composites.count("attention"), 0u);
  EXPECT_THAT(report->warnings,
              testing::Contains(HasSubstr("node 'attended': this attention stays decomposed: "
                                          "'tbc.sin' stands between its scores")));
}

} // namespace
