//===- torch_arguments_test.cpp - Arguments that nodes of PyTorch's exporter leave out
//-----------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>
#include <tuple>

using namespace tbc;
using namespace tbc::test;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

namespace {

/// Adds the call that torch's newer exporter keeps beside a node.
void writtenFrom(onnx::NodeProto &node, const std::string &call) {
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key("pkg.torch.onnx.fx_node");
  entry.set_value("%y : [num_users=1] = call_function[target=torch.ops." + call);
}

/// The cross entropy of scores [[0, 1, 2], [3, 4, 5]] with labels 0 and 2, with class weights or
/// without them.
ModelBuilder crossEntropy(const std::string &smoothing, bool isWeighted, bool isMean = true) {
  ModelBuilder b(18);
  b.input("x", {"batch", "3"});
  b.input("labels", {"batch"}, /*isFloat=*/false);
  b.output("y");
  if (isWeighted)
    b.floats("weights", {3}, {1, 2, 4});
  std::vector<std::string> inputs{"x", "labels"};
  if (isWeighted)
    inputs.push_back("weights");
  onnx::NodeProto &node = b.node("SoftmaxCrossEntropyLoss", inputs, {"y"});
  ModelBuilder::attr(node, "ignore_index", int64_t(-100));
  ModelBuilder::attr(node, "reduction", std::string(isMean ? "mean" : "none"));
  writtenFrom(node,
              "aten.cross_entropy_loss.default](args = (%x, %labels, None, 1, -100" + smoothing);
  return b;
}

/// torch's newer exporter writes cross entropies without their label smoothing.
TEST(TorchArguments, LabelSmoothing) {
  // log softmax([0, 1, 2]) is x - z; both rows have the same.
  const double z = std::log(1 + std::exp(1) + std::exp(2));
  const double all = 3 * z - 3;
  for (const char *text : {", 0.3), kwargs = {})", "), kwargs = {label_smoothing: 0.3})"}) {
    ModelRunner runner;
    runner.inputs = {{"labels", {0, 0}}};
    EXPECT_THAT(runner.run(crossEntropy(text, false)),
                ElementsAre(DoubleNear(0.7 * z + 0.1 * all, 1e-6)));
  }
  ModelRunner runner;
  runner.inputs = {{"labels", {0, 0}}};
  EXPECT_THAT(runner.run(crossEntropy("), kwargs = {})", false)), ElementsAre(DoubleNear(z, 1e-6)));
}

/// The share of all classes has their weights, and a label that does not count has no share.
TEST(TorchArguments, LabelSmoothingWithWeights) {
  const double z = std::log(1 + std::exp(1) + std::exp(2));
  const double all = z + 2 * (z - 1) + 4 * (z - 2);
  ModelRunner runner;
  runner.inputs = {{"labels", {0, -100}}};
  EXPECT_THAT(runner.run(crossEntropy(", 0.3), kwargs = {})", true)),
              ElementsAre(DoubleNear(0.7 * z + 0.1 * all, 1e-6)));
  runner.inputs = {{"labels", {0, 2}}};
  EXPECT_THAT(runner.run(crossEntropy(", 0.3), kwargs = {})", true, /*isMean=*/false)),
              ElementsAre(DoubleNear(0.7 * z + 0.1 * all, 1e-6),
                          DoubleNear(0.7 * 4 * (z - 2) + 0.1 * all, 1e-6)));
  EXPECT_THAT(importError(crossEntropy(", 1.5), kwargs = {})", false).bytes()),
              HasSubstr("label_smoothing that is not between 0 and 1"));
  EXPECT_THAT(importError(crossEntropy(", %s), kwargs = {})", false).bytes()),
              HasSubstr("label_smoothing %s, where a number is expected"));
}

/// Probabilities in place of labels, as of mixed pictures. PyTorch's exporters write the same node.
TEST(TorchArguments, LossOfProbabilities) {
  const double z = std::log(1 + std::exp(1) + std::exp(2));
  for (bool isSmooth : {false, true}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "3"});
    b.input("targets", {"batch", "3"});
    b.output("y");
    b.floats("weights", {3}, {1, 2, 4});
    onnx::NodeProto &node = b.node("SoftmaxCrossEntropyLoss", {"x", "targets", "weights"}, {"y"});
    ModelBuilder::attr(node, "ignore_index", int64_t(-100));
    if (isSmooth)
      writtenFrom(node, "aten.cross_entropy_loss.default](args = (%x, %t, %w, 1, -100, 0.3), "
                        "kwargs = {})");
    ModelRunner runner;
    runner.inputs = {{"targets", {1, 0, 0, 0, 0.5, 0.5}}};
    auto loss = [&](double a, double b, double c) {
      auto part = [&](double p) { return isSmooth ? 0.7 * p + 0.1 : p; };
      return part(a) * z + part(b) * 2 * (z - 1) + part(c) * 4 * (z - 2);
    };
    EXPECT_THAT(runner.run(b),
                ElementsAre(DoubleNear((loss(1, 0, 0) + loss(0, 0.5, 0.5)) / 2, 1e-6)));
  }
}

/// The row of an embedding's padding_idx has no gradient in PyTorch.
TEST(TorchArguments, PaddingHasNoGradient) {
  for (const char *padding : {", 1), kwargs = {})", ", -1), kwargs = {})", "), kwargs = {})"}) {
    ModelBuilder b;
    b.input("ids", {"batch", "2"}, /*isFloat=*/false);
    b.output("y");
    b.floats("table", {3, 2}, {0, 1, 2, 3, 4, 5});
    writtenFrom(b.node("Gather", {"table", "ids"}, {"y"}),
                std::string("aten.embedding.default](args = (%table, %ids") + padding);
    ModelRunner runner;
    runner.inputs = {{"ids", {0, 1, 1, 2}}};
    EXPECT_THAT(runner.run(b), ElementsAre(0, 1, 2, 3, 2, 3, 4, 5));
    EXPECT_EQ(runner.count("detach"), padding[2] == '1' ? 1u : 0u) << padding;
    EXPECT_EQ(runner.count("select"), padding[2] == '1' ? 1u : 0u) << padding;
  }
}

/// Gradients of such an embedding are divided by counts over the batch.
TEST(TorchArguments, GradientScaledByFrequencyIsRefused) {
  ModelBuilder b;
  b.input("ids", {"batch", "2"}, /*isFloat=*/false);
  b.output("y");
  b.floats("table", {3, 2}, {0, 1, 2, 3, 4, 5});
  writtenFrom(b.node("Gather", {"table", "ids"}, {"y"}),
              "aten.embedding.default](args = (%table, %ids, -1, True), kwargs = {})");
  EXPECT_THAT(importError(b.bytes()), HasSubstr("an embedding with scale_grad_by_freq"));
}

/// The exporter writes a mean as a replacement.
TEST(TorchArguments, MeanOfScatteredElements) {
  for (const auto &[arguments, expected] :
       {std::pair("%u, mean), kwargs = {include_self: False})", std::vector<double>{1, 2, 6}),
        std::pair("%u, mean), kwargs = {})", std::vector<double>{1, 2, 5}),
        std::pair("%u, mean, True), kwargs = {})", std::vector<double>{1, 2, 5})}) {
    ModelBuilder b;
    b.input("x", {"batch", "3"});
    b.input("u", {"batch", "2"});
    b.input("i", {"batch", "2"}, /*isFloat=*/false);
    b.output("y");
    onnx::NodeProto &node = b.node("ScatterElements", {"x", "i", "u"}, {"y"});
    ModelBuilder::attr(node, "axis", int64_t(1));
    writtenFrom(node, std::string("aten.scatter_reduce.two](args = (%x, 1, %i, ") + arguments);
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs = {{"x", {1, 2, 3}}, {"i", {2, 2}}, {"u", {4, 8}}};
    EXPECT_THAT(runner.run(b), ElementsAreArray(expected)) << arguments;
  }
}

/// The slope of sinc at 0 is 0 in PyTorch, and 0 / 0 where the exporter's quotient is not chosen.
TEST(TorchArguments, QuotientOfSinc) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.node("Sin", {"x"}, {"sine"});
  onnx::NodeProto &node = b.node("Div", {"sine", "x"}, {"y"});
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key("namespace");
  entry.set_value(": model.Filters/sinc: aten.sinc.default");
  ModelRunner runner;
  runner.inputs = {{"x", {0, 1, 2, 3}}};
  EXPECT_THAT(runner.run(b),
              ElementsAre(0, DoubleNear(std::sin(1), 1e-9), DoubleNear(std::sin(2) / 2, 1e-9),
                          DoubleNear(std::sin(3) / 3, 1e-9)));
}

/// The exporter writes 2 of 5 elements, and F.interpolate takes the scale 0.5 that is given.
TEST(TorchArguments, ScalesOfAntialiasedResize) {
  for (bool isScaled : {false, true}) {
    ModelBuilder b(18);
    b.input("x", {"batch", "1", "1", "5"});
    b.output("y");
    b.ints("rest", {3}, {1, 1, 2});
    ModelBuilder::attr(b.node("Shape", {"x"}, {"samples"}), "end", int64_t(1));
    ModelBuilder::attr(b.node("Concat", {"samples", "rest"}, {"sizes"}), "axis", int64_t(0));
    onnx::NodeProto &node = b.node("Resize", {"x", "", "", "sizes"}, {"y"});
    ModelBuilder::attr(node, "mode", std::string("linear"));
    ModelBuilder::attr(node, "antialias", int64_t(1));
    ModelBuilder::attr(node, "exclude_outside", int64_t(1));
    writtenFrom(node, "aten._upsample_bilinear2d_aa.default](args = (%x, [1, 2], False" +
                          std::string(isScaled ? ", 1.0, 0.5" : "") + "), kwargs = {})");
    ModelRunner runner;
    runner.options.batch = 1;
    runner.inputs = {{"x", {0, 1, 2, 3, 4}}};
    EXPECT_THAT(runner.run(b), ElementsAre(DoubleNear(isScaled ? 0.714286 : 1, 1e-4),
                                           DoubleNear(isScaled ? 2.5 : 3, 1e-4)));
  }
}

/// The exporter divides by the size of the window.
TEST(TorchArguments, DivisorOfAveragesIsRefused) {
  for (const char *divisor : {"3", "None"}) {
    ModelBuilder b;
    b.input("x", {"batch", "1", "2", "2"});
    b.output("y");
    onnx::NodeProto &node = b.node("AveragePool", {"x"}, {"y"});
    ModelBuilder::attr(node, "kernel_shape", std::vector<int64_t>{2, 2});
    writtenFrom(node, std::string("aten.avg_pool2d.default](args = (%x, [2, 2], [2, 2], [0, 0], "
                                  "False, True, ") +
                          divisor + "), kwargs = {})");
    const bool isGiven = std::string(divisor) != "None";
    EXPECT_THAT(importError(b.bytes()), HasSubstr(isGiven ? "divisor_override 3" : ""));
    EXPECT_EQ(importError(b.bytes()).empty(), !isGiven);
  }
}

/// Returns how many of `reads`, the inputs of a node that is written from `call`, are detached, and
/// the warnings about them.
std::pair<unsigned, std::string> detachedReads(const std::vector<std::string> &reads,
                                               const std::string &call) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.floats("w", {2}, {1, 3});
  b.node("Mul", {"x", "w"}, {"scaled"});
  b.node("Add", {"scaled", "w"}, {"moved"});
  writtenFrom(b.node("Sub", reads, {"difference"}), call);
  writtenFrom(b.node("Mul", {"difference", "difference"}, {"square"}), call);
  b.node("Add", {"square", "scaled"}, {"y"});
  ModelRunner runner;
  runner.options.parameters = {"w"};
  runner.run(b);
  std::string text;
  for (const std::string &warning : runner.model->warnings)
    if (warning.find("detaches") != std::string::npos)
      text += warning;
  return {runner.count("detach"), text};
}

/// The exporter leaves detach() out, and its readers still name it.
TEST(TorchArguments, ReadsOfDetachedValues) {
  auto call = [](const std::string &arguments) {
    return "aten.mse_loss.default](args = (" + arguments + "), kwargs = {})";
  };
  // The operand that no argument names; the second node of the call reads no arguments.
  auto [count, text] = detachedReads({"scaled", "moved"}, call("%detach, %moved"));
  EXPECT_EQ(count, 1u);
  EXPECT_THAT(text, HasSubstr("PyTorch detaches values that are read there"));
  EXPECT_EQ(text.find("more"), std::string::npos);
  // Both operands are one value, in other orders.
  EXPECT_EQ(detachedReads({"moved", "moved"}, call("%moved, %detach_1")).first, 1u);
  EXPECT_EQ(detachedReads({"scaled", "moved"}, call("%detach, %detach_1")).first, 2u);
  EXPECT_EQ(detachedReads({"scaled", "moved"}, call("%scaled, %moved")).first, 0u);
  // A swapped call, as of rsub: the name tells.
  EXPECT_EQ(detachedReads({"scaled", "moved"}, call("%moved, %detach")).first, 1u);
  std::tie(count, text) = detachedReads({"moved", "moved"}, call("%detach, %moved, %scaled"));
  EXPECT_EQ(count, 0u);
  EXPECT_THAT(text, HasSubstr("the file does not say which, so gradients pass"));
}

/// Returns the warnings about dropped offsets of a model with `op` at `input`, of a call that reads
/// `read`; with `isMoved` a view of the input makes that call. "product" is no sum, "add_1" is one,
/// and so is "renamed", which PyTorch names add_2.
std::string droppedOffsets(const std::string &op, const std::string &read,
                           const std::string &input = "product", bool isMoved = false) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.output("y");
  b.floats("w", {2}, {1, 3});
  b.ints("axes", {1}, {0});
  b.node("Softmax", {"x"}, {"weights"});
  b.node("Mul", {"weights", "w"}, {"product"});
  b.node("Add", {"product", "w"}, {"add_1"});
  onnx::NodeProto &other = b.node("Add", {"product", "w"}, {"renamed"});
  writtenFrom(other, "aten.add.Tensor](args = (%mul, %w), kwargs = {})");
  other.mutable_metadata_props(0)->set_value(
      "%add_2 : [num_users=1] = call_function[target=torch."
      "ops.aten.add.Tensor](args = (%mul, %w), kwargs = {})");
  writtenFrom(b.node("Neg", {"add_1"}, {"negated"}),
              std::string("aten.neg.default](args = (%") +
                  (input == "add_1" && read == "add_7" ? "add_1" : "x") + ",), kwargs = {})");
  std::string source = input;
  const std::string call = "aten.op.default](args = (%" + read + ",), kwargs = {})";
  if (isMoved) {
    writtenFrom(b.node("Unsqueeze", {source, "axes"}, {"moved"}), call);
    b.node("Squeeze", {"moved", "axes"}, {"back"});
    source = "back";
  }
  std::vector<std::string> inputs{source};
  if (op == "Div")
    inputs = {"w", source};
  onnx::NodeProto &node = b.node(op, inputs, {"result"});
  if (!isMoved)
    writtenFrom(node, call);
  b.node("Add", {"result", "negated"}, {"total"});
  b.node("Add", {"total", "renamed"}, {"y"});
  ModelRunner runner;
  runner.options.parameters = {"w"};
  runner.run(b);
  std::string text;
  for (const std::string &warning : runner.model->warnings)
    if (warning.find("has dropped a number") != std::string::npos)
      text += warning;
  return text;
}

/// The exporter's optimizer takes 1e-8 for zero; the readers of the sum still name it.
TEST(TorchArguments, OffsetsThatTheOptimizerDrops) {
  for (const char *op : {"Log", "Sqrt", "Reciprocal", "Div"})
    for (const char *read : {"add_4", "add", "sub_1", "add__1"})
      EXPECT_THAT(droppedOffsets(op, read), HasSubstr("optimize=False")) << op << " " << read;
  EXPECT_THAT(droppedOffsets("Log", "add_4", "product", /*isMoved=*/true),
              HasSubstr("optimize=False"));
  // Not singular at zero; another op; named; a sum of another name in the file.
  EXPECT_EQ(droppedOffsets("Exp", "add_4"), "");
  EXPECT_EQ(droppedOffsets("Log", "mul_4"), "");
  EXPECT_EQ(droppedOffsets("Log", "product"), "");
  EXPECT_EQ(droppedOffsets("Log", "add_2"), "");
  EXPECT_EQ(droppedOffsets("Log", "add_2", "renamed"), "");
  // A sum of a sum, and one that was joined with an equal one, which its own reader names.
  EXPECT_THAT(droppedOffsets("Log", "add_4", "add_1"), HasSubstr("optimize=False"));
  EXPECT_EQ(droppedOffsets("Log", "add_7", "add_1"), "");
}

/// The stack trace of a node tells of a torch.autograd.Function, whose backward no file has.
TEST(TorchArguments, CustomFunctions) {
  auto warningsOf = [](const std::string &call, const std::string &frame) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.output("y");
    b.floats("w", {2}, {1, 3});
    b.node("Mul", {"x", "w"}, {"scaled"});
    onnx::StringStringEntryProto &entry = *b.node("Tanh", {"scaled"}, {"y"}).add_metadata_props();
    entry.set_key("pkg.torch.onnx.stack_trace");
    entry.set_value("File \"model.py\", line 9, in forward\n    y = " + call +
                    "\n  File \"model.py\", line 3, in " + frame + "\n    return x.tanh()");
    ModelRunner runner;
    runner.options.parameters = {"w"};
    runner.run(b);
    std::string text;
    for (const std::string &warning : runner.model->warnings)
      if (warning.find("torch.autograd.Function") != std::string::npos)
        text += warning;
    return text;
  };
  EXPECT_THAT(warningsOf("ops.Round.apply(x)", "forward"), HasSubstr("in Round.apply()"));
  EXPECT_EQ(warningsOf("ops.Round.apply(x)", "helper"), "");
  EXPECT_EQ(warningsOf("self.apply(x)", "forward"), "");
  EXPECT_EQ(warningsOf("self.round(x)", "forward"), "");
}

/// The optimizer has joined relu(x) and relu(x.detach()): the call of one is kept, and a reader of
/// the other names its own result.
TEST(TorchArguments, DetachedReadsOfJoinedNodes) {
  for (const char *read : {"relu", "relu_2", "clone"}) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.output("y");
    b.floats("w", {2}, {1, 3});
    b.node("Mul", {"x", "w"}, {"scaled"});
    writtenFrom(b.node("Relu", {"scaled"}, {"relu"}),
                "aten.relu.default](args = (%detach,), kwargs = {})");
    writtenFrom(b.node("Add", {"relu", "scaled"}, {"y"}),
                "aten.add.Tensor](args = (%" + std::string(read) + ", %scaled), kwargs = {})");
    ModelRunner runner;
    runner.options.parameters = {"w"};
    runner.run(b);
    const bool isJoined = std::string(read) == "relu_2";
    EXPECT_EQ(runner.count("detach"), isJoined ? 0u : 1u) << read;
    EXPECT_THAT(runner.model->warnings,
                ::testing::Contains(
                    HasSubstr(isJoined ? "export with optimize=False" : "as the metadata says")));
  }
}

/// Without the optimizer of the exporter, detach() is an Identity.
TEST(TorchArguments, IdentityOfDetach) {
  for (const char *op : {"aten.detach.default", "aten.alias.default"}) {
    ModelBuilder b;
    b.input("x", {"batch", "2"});
    b.output("y");
    b.floats("w", {2}, {1, 3});
    b.node("Mul", {"x", "w"}, {"scaled"});
    onnx::NodeProto &node = b.node("Identity", {"scaled"}, {"detach"});
    onnx::StringStringEntryProto &entry = *node.add_metadata_props();
    entry.set_key("namespace");
    entry.set_value(std::string(": Model/detach: ") + op);
    writtenFrom(b.node("Sub", {"scaled", "detach"}, {"y"}),
                "aten.sub.Tensor](args = (%scaled, %detach), kwargs = {})");
    ModelRunner runner;
    runner.options.parameters = {"w"};
    runner.run(b);
    EXPECT_EQ(runner.count("detach"), std::string(op) == "aten.detach.default" ? 1u : 0u);
  }
}

} // namespace
