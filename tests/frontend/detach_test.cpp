//===- detach_test.cpp - Values without a gradient -------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

/// h = x w, code = round(h), y = h + (code - h), z = y * y; "gap" is code - h.
ModelBuilder straightThrough() {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.floats("w", {4, 4}, std::vector<float>(16, 0.3f));
  b.node("MatMul", {"x", "w"}, {"h"});
  b.node("Round", {"h"}, {"code"});
  b.node("Sub", {"code", "h"}, {"gap"}, "difference");
  b.node("Add", {"h", "gap"}, {"y"}, "sum");
  b.node("Mul", {"y", "y"}, {"z"}, "square");
  b.output("z");
  return b;
}

/// The producers of the detached values, by the mnemonics of their ops.
std::vector<std::string> detachedBy(const ModelBuilder &b,
                                    const std::vector<std::string> &detached) {
  ModelRunner runner;
  runner.options.detached = detached;
  runner.run(b);
  std::vector<std::string> producers;
  for (mlir::Operation &op : runner.function().getBody().front())
    if (op.getName().getStringRef() == "tbc.detach") {
      mlir::Operation *producer = op.getOperand(0).getDefiningOp();
      producers.push_back(producer ? producer->getName().getStringRef().str() : "argument");
    }
  return producers;
}

std::string usageError(const std::vector<std::string> &detached) {
  TemporaryFolder folder;
  frontend::ImportOptions options;
  options.detached = detached;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto model =
      frontend::importOnnx(context, folder.write("m.onnx", straightThrough().bytes()), options);
  EXPECT_FALSE(bool(model));
  EXPECT_EQ(int(model.error().code), int(ErrorCode::Usage));
  return model.error().message;
}

/// torch.fake_quantize: the pair of nodes passes gradients, and 300 is saturated to 255.
TEST(Detach, QuantizationPassesGradients) {
  ModelBuilder b;
  b.input("x", {"batch", "2"});
  b.floats("w", {2}, {1, 1});
  b.floats("scale", {}, {0.5f});
  b.node("Mul", {"x", "w"}, {"h"});
  b.node("QuantizeLinear", {"h", "scale"}, {"q"});
  b.node("DequantizeLinear", {"q", "scale"}, {"y"});
  b.output("y");
  ModelRunner runner;
  runner.inputs["x"] = {0.3, 300, -1, 2.2};
  EXPECT_EQ(runner.run(b), (std::vector<double>{0.5, 127.5, 0, 2}));
  EXPECT_EQ(runner.count("detach"), 1u);
  ASSERT_EQ(runner.model->parameters.size(), 1u);
  EXPECT_EQ(runner.model->parameters[0].name, "w");
}

TEST(Detach, OfAValueIsForAllItsReaders) {
  EXPECT_THAT(detachedBy(straightThrough(), {}), IsEmpty());
  EXPECT_EQ(detachedBy(straightThrough(), {"gap"}), (std::vector<std::string>{"tbc.sub"}));
  EXPECT_EQ(detachedBy(straightThrough(), {"ga?"}), (std::vector<std::string>{"tbc.sub"}));
}

TEST(Detach, OfAReadIsForOneNode) {
  EXPECT_EQ(detachedBy(straightThrough(), {"h@diff*"}), (std::vector<std::string>{"tbc.einsum"}));
  // Both operands of the square, each by an op of its own.
  EXPECT_EQ(detachedBy(straightThrough(), {"y@square"}).size(), 2u);
}

TEST(Detach, DoesNotChangeTheValue) {
  ModelRunner plain, cut;
  cut.options.detached = {"gap", "h@difference"};
  EXPECT_EQ(plain.run(straightThrough()), cut.run(straightThrough()));
}

TEST(Detach, HoldsParametersThatNoGradientReaches) {
  ModelRunner runner;
  runner.options.detached = {"h"};
  runner.run(straightThrough());
  ASSERT_EQ(runner.model->parameters.size(), 1u);
  EXPECT_TRUE(runner.model->parameters[0].isState);
  runner.options.detached = {"w"};
  runner.run(straightThrough());
  EXPECT_TRUE(runner.model->parameters[0].isState);
  runner.options.detached = {"gap"};
  runner.run(straightThrough());
  EXPECT_FALSE(runner.model->parameters[0].isState);
}

TEST(Detach, MistakesAreUsageErrors) {
  EXPECT_THAT(usageError({"gapp"}),
              HasSubstr("computes no float value 'gapp'; did you mean 'gap'?"));
  EXPECT_THAT(usageError({"gap@square"}), HasSubstr("no node 'square' reads the value 'gap'"));
  EXPECT_THAT(usageError({"[g"}), HasSubstr("malformed"));
}

/// The op of the domain tbc, alone and with a body for other programs.
TEST(Detach, IsAnOpOfFiles) {
  for (bool hasBody : {false, true}) {
    ModelBuilder b = straightThrough();
    for (onnx::NodeProto &node : *b.proto.mutable_graph()->mutable_node())
      if (node.name() == "sum")
        node.set_input(1, "cut");
    onnx::NodeProto detach = makeNode("Detach", {"gap"}, {"cut"}, "detach");
    detach.set_domain("tbc");
    auto &nodes = *b.proto.mutable_graph()->mutable_node();
    *nodes.Add() = detach;
    for (int i = nodes.size() - 1; nodes[i - 1].name() == "sum" || nodes[i - 1].name() == "square";
         --i)
      nodes.SwapElements(i, i - 1);
    onnx::OperatorSetIdProto &set = *b.proto.add_opset_import();
    set.set_domain("tbc");
    set.set_version(1);
    if (hasBody) {
      onnx::FunctionProto &function = *b.proto.add_functions();
      function.set_domain("tbc");
      function.set_name("Detach");
      function.add_input("a");
      function.add_output("b");
      *function.add_node() = makeNode("Identity", {"a"}, {"b"});
    }
    EXPECT_EQ(detachedBy(b, {}), (std::vector<std::string>{"tbc.sub"}));
  }
}

void addMetadata(onnx::NodeProto &node, const std::string &key, const std::string &value) {
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

/// Adds the call that torch's newer exporter keeps beside a node.
void writtenFrom(onnx::NodeProto &node, const std::string &call) {
  addMetadata(node, "pkg.torch.onnx.fx_node",
              "%y : [num_users=1] = call_function[target=torch.ops.aten." + call +
                  ", kwargs = {})");
}

/// Adds a stack trace of one line of a function that the exporter made, of torch.no_grad() or
/// torch.autocast().
void generated(onnx::NodeProto &node, const std::string &line) {
  addMetadata(node, "pkg.torch.onnx.stack_trace",
              "File \"<eval_with_key>.7\", line 5, in forward\n    y = torch.ops." + line);
}

/// The loss (x w - x t)^2, with x t in a function that the exporter made. `line` is that of x t.
ModelBuilder withTeacher(const std::string &line, const std::string &teacher = "t") {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.floats("w", {4, 4}, std::vector<float>(16, 0.3f));
  b.floats("t", {4, 4}, std::vector<float>(16, 0.2f));
  writtenFrom(b.node("MatMul", {"x", "w"}, {"matmul"}), "matmul.default](args = (%x, %p_w)");
  onnx::NodeProto &node = b.node("MatMul", {"x", teacher}, {"matmul_1"}, "teacher");
  writtenFrom(node, "matmul.default](args = (%x, %p_" + teacher + ")");
  generated(node, line);
  b.node("Sub", {"matmul", "matmul_1"}, {"gap"}, "difference");
  b.node("Mul", {"gap", "gap"}, {"z"});
  b.output("z");
  return b;
}

/// Only the exporter's functions of no_grad name the values outside.
TEST(Detach, NodesUnderNoGradPassNoGradient) {
  for (const auto &[line, isNoGrad] :
       {std::pair("aten.matmul.default(x, p_t);  x = p_t = None", true),
        std::pair(
            "higher_order.wrap_with_autocast('cpu', submod_1, x, p_t);  x = p_t = None\n  File "
            "\"<eval_with_key>.8\", line 5, in forward\n    y = torch.ops.aten.sin(arg1_1)",
            true),
        std::pair("aten.matmul.default(arg1_1, arg0_1);  arg1_1 = arg0_1 = None", false),
        std::pair("aten.matmul.default(to, p_t_1);  to = None", false)}) {
    SCOPED_TRACE(line);
    ModelRunner runner;
    runner.run(withTeacher(line));
    EXPECT_EQ(runner.model->parameters.back().name, "t");
    EXPECT_EQ(runner.model->parameters.back().isState, isNoGrad);
    const auto warns = testing::Contains(
        HasSubstr("node 'teacher': PyTorch computes this under torch.no_grad(), as"));
    EXPECT_THAT(runner.model->warnings,
                isNoGrad ? testing::Matcher<std::vector<std::string>>(warns) : testing::Not(warns));
  }
}

/// A function of no input and no tensor of the module may be one of autocast.
TEST(Detach, ValuesAloneDoNotTellNoGradFromAutocast) {
  ModelBuilder b;
  b.input("x", {"batch", "4"});
  b.floats("w", {4, 4}, std::vector<float>(16, 0.3f));
  writtenFrom(b.node("MatMul", {"x", "w"}, {"matmul"}), "matmul.default](args = (%x, %p_w)");
  onnx::NodeProto &node = b.node("Exp", {"matmul"}, {"exp"}, "weight");
  writtenFrom(node, "exp.default](args = (%matmul,)");
  generated(node, "aten.exp.default(matmul);  matmul = None");
  b.node("Mul", {"matmul", "exp"}, {"z"});
  b.output("z");
  EXPECT_THAT(detachedBy(b, {}), IsEmpty());
  ModelRunner runner;
  runner.run(b);
  EXPECT_THAT(runner.model->warnings,
              testing::Contains(HasSubstr("node 'weight': PyTorch computes this under "
                                          "torch.no_grad(), torch.autocast() or")));
}

/// After a reentrant torch.utils.checkpoint the trace has gradients off up to the output, and the
/// model trains all the same.
TEST(Detach, OutputsUnderNoGradAreOfACheckpoint) {
  ModelBuilder b = withTeacher("aten.matmul.default(x, p_t);  x = p_t = None");
  onnx::NodeProto &last = *b.proto.mutable_graph()->mutable_node(3);
  writtenFrom(last, "mul.Tensor](args = (%gap, %p_t)");
  generated(last, "aten.mul.Tensor(gap, p_t);  gap = None");
  ModelRunner runner;
  runner.run(b);
  EXPECT_FALSE(runner.model->parameters.back().isState);
  EXPECT_THAT(runner.model->warnings,
              testing::Contains(HasSubstr("node 'teacher' and 1 more: PyTorch computes this under "
                                          "torch.no_grad(), torch.autocast() or a reentrant")));
}

/// A weight that is trained elsewhere is detached where it is read under no_grad.
TEST(Detach, AWeightMayAlsoBeReadUnderNoGrad) {
  EXPECT_EQ(detachedBy(withTeacher("aten.matmul.default(x, p_w)", "w"), {}),
            (std::vector<std::string>{"argument", "argument"}));
}

/// The exporter has joined x t under no_grad with an equal node, whose result others name.
TEST(Detach, AJoinedNodeUnderNoGradIsUnclear) {
  ModelBuilder b = withTeacher("aten.matmul.default(x, p_t)");
  for (onnx::NodeProto &node : *b.proto.mutable_graph()->mutable_node())
    if (node.name() == "difference")
      writtenFrom(node, "sub.Tensor](args = (%matmul, %matmul_2)");
  ModelRunner runner;
  runner.run(b);
  EXPECT_FALSE(runner.model->parameters.back().isState);
  EXPECT_THAT(runner.model->warnings,
              testing::Contains(HasSubstr("node 'teacher': PyTorch computes this under "
                                          "torch.no_grad(), and the exporter may have joined it")));
}

} // namespace
