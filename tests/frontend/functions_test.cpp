//===- functions_test.cpp - Local functions --------------------------------===//

#include "tests/frontend/ModelRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace tbc;
using namespace tbc::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

const char kDomain[] = "local";

/// Adds a function of `kDomain` with operator set 18.
onnx::FunctionProto &addFunction(ModelBuilder &builder, const std::string &name,
                                 const std::vector<std::string> &inputs,
                                 const std::vector<std::string> &outputs,
                                 const std::vector<onnx::NodeProto> &nodes) {
  onnx::FunctionProto &function = *builder.proto.add_functions();
  function.set_name(name);
  function.set_domain(kDomain);
  function.add_opset_import()->set_version(18);
  for (const std::string &input : inputs)
    function.add_input(input);
  for (const std::string &output : outputs)
    function.add_output(output);
  for (const onnx::NodeProto &node : nodes)
    *function.add_node() = node;
  return function;
}

onnx::NodeProto call(const std::string &type, const std::vector<std::string> &inputs,
                     const std::vector<std::string> &outputs, const std::string &name = "") {
  onnx::NodeProto node = makeNode(type, inputs, outputs, name);
  node.set_domain(kDomain);
  return node;
}

ModelBuilder withInput() {
  ModelBuilder builder;
  builder.input("x", {"batch", "2"});
  builder.output("y");
  return builder;
}

void add(ModelBuilder &builder, const onnx::NodeProto &node) {
  *builder.proto.mutable_graph()->add_node() = node;
}

TEST(Functions, AreInlinedWithScopedNames) {
  ModelBuilder b = withInput();
  addFunction(b, "Twice", {"a"}, {"r"}, {makeNode("Add", {"a", "a"}, {"r"}, "add")});
  addFunction(b, "FourTimes", {"a"}, {"r"},
              {call("Twice", {"a"}, {"t"}, "first"), call("Twice", {"t"}, {"r"}, "second")});
  add(b, call("FourTimes", {"x"}, {"t"}, "outer"));
  add(b, call("Twice", {"t"}, {"y"}, "last"));
  ModelRunner runner;
  EXPECT_THAT(runner.run(b), ElementsAre(0, 8, 16, 24));
  std::vector<std::string> ids;
  for (mlir::Operation &op : runner.function().getBody().front().without_terminator())
    ids.push_back(op.getAttrOfType<mlir::StringAttr>("tbc.id").getValue().str());
  EXPECT_THAT(ids, ElementsAre("outer/first/add", "outer/second/add", "last/add"));
}

/// t and r have different meanings inside and outside.
TEST(Functions, NamesOfCallerAndFunctionAreApart) {
  ModelBuilder b = withInput();
  addFunction(b, "F", {"y"}, {"r"},
              {makeNode("Neg", {"y"}, {"t"}), makeNode("Mul", {"t", "y"}, {"r"})});
  b.node("Add", {"x", "x"}, {"t"});
  add(b, call("F", {"t"}, {"r"}, "f"));
  b.node("Sub", {"r", "x"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, -5, -18, -39));
}

TEST(Functions, AttributesByReferenceTakeTheCallsValueOrTheDefault) {
  ModelBuilder b = withInput();
  onnx::NodeProto leaky = makeNode("LeakyRelu", {"n"}, {"r"});
  onnx::AttributeProto &reference = *leaky.add_attribute();
  reference.set_name("alpha");
  reference.set_type(onnx::AttributeProto::FLOAT);
  reference.set_ref_attr_name("slope");
  onnx::FunctionProto &inner =
      addFunction(b, "Inner", {"a"}, {"r"}, {makeNode("Neg", {"a"}, {"n"}), leaky});
  onnx::AttributeProto &byDefault = *inner.add_attribute_proto();
  byDefault.set_name("slope");
  byDefault.set_type(onnx::AttributeProto::FLOAT);
  byDefault.set_f(0.5f);
  onnx::NodeProto passed = call("Inner", {"a"}, {"r"});
  onnx::AttributeProto &passedOn = *passed.add_attribute();
  passedOn.set_name("slope");
  passedOn.set_type(onnx::AttributeProto::FLOAT);
  passedOn.set_ref_attr_name("outer_slope");
  addFunction(b, "Outer", {"a"}, {"r"}, {passed}).add_attribute("outer_slope");
  onnx::NodeProto given = call("Outer", {"x"}, {"u"}, "given");
  floatAttr(given, "outer_slope", 4);
  add(b, given);
  add(b, call("Outer", {"x"}, {"v"}, "left_out"));
  b.node("Add", {"u", "v"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, -4.5, -9, -13.5));
}

TEST(Functions, OmittedInputsAndOutputs) {
  ModelBuilder b = withInput();
  b.floats("low", {}, {1});
  addFunction(b, "F", {"a", "lo", "hi"}, {"r", "same", "more"},
              {makeNode("Clip", {"a", "lo", "hi"}, {"r"}), makeNode("Neg", {"a"}, {"more"}),
               makeNode("Identity", {"a"}, {"same"})});
  add(b, call("F", {"x", "low"}, {"y", ""}, "f"));
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(1, 1, 2, 3));
}

TEST(Functions, AnOutputMayBeAnInput) {
  ModelBuilder b = withInput();
  addFunction(b, "Pass", {"a"}, {"a", "n", "n"}, {makeNode("Neg", {"a"}, {"n"})});
  add(b, call("Pass", {"x"}, {"u", "v", "w"}, "f"));
  b.node("Sum", {"u", "v", "w"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, -1, -2, -3));
}

/// ReduceSum had axes as an attribute in operator sets 11 and 12, and as an input from 13 on. Split
/// got num_outputs in 18.
TEST(Functions, KeepTheirOwnOperatorSet) {
  ModelBuilder b(13);
  b.input("x", {"batch", "2"});
  b.output("y");
  onnx::NodeProto mean = makeNode("ReduceMean", {"a", "axes"}, {"r"});
  ModelBuilder::attr(mean, "keepdims", int64_t(0));
  addFunction(b, "MeanOf18", {"a", "axes"}, {"r"}, {mean});
  b.ints("axes", {1}, {1});
  add(b, call("MeanOf18", {"x", "axes"}, {"y"}, "f"));
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0.5, 2.5));
  b.proto.mutable_functions(0)->mutable_opset_import(0)->set_version(99);
  EXPECT_THAT(importError(b.bytes()), HasSubstr("function 'local.MeanOf18' uses operator set 99"));
}

/// A function of the model comes first, even if tbc has an op of the same name.
TEST(Functions, ComeBeforeOpsOfTheSameName) {
  ModelBuilder b = withInput();
  addFunction(b, "Relu", {"a"}, {"r"}, {makeNode("Neg", {"a"}, {"r"})}).set_domain("");
  b.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, -1, -2, -3));
}

TEST(Functions, OverloadsAreApart) {
  ModelBuilder b = withInput();
  addFunction(b, "F", {"a"}, {"r"}, {makeNode("Neg", {"a"}, {"r"})});
  addFunction(b, "F", {"a"}, {"r"}, {makeNode("Add", {"a", "a"}, {"r"})}).set_overload("2");
  onnx::NodeProto second = call("F", {"x"}, {"y"});
  second.set_overload("2");
  add(b, second);
  EXPECT_THAT(ModelRunner().run(b), ElementsAre(0, 2, 4, 6));
}

TEST(Functions, ThatCallThemselvesAreRefused) {
  ModelBuilder b = withInput();
  addFunction(b, "F", {"a"}, {"r"}, {call("G", {"a"}, {"r"})});
  addFunction(b, "G", {"a"}, {"r"}, {call("F", {"a"}, {"r"})});
  add(b, call("F", {"x"}, {"y"}));
  EXPECT_THAT(importError(b.bytes()), HasSubstr("function 'local.F' calls itself"));
}

/// Each function calls the one before it twice.
TEST(Functions, ExponentialOnesAreRefused) {
  ModelBuilder b = withInput();
  addFunction(b, "F0", {"a"}, {"r"}, {makeNode("Neg", {"a"}, {"r"})});
  for (int i = 1; i <= 40; ++i) {
    std::string before = "F" + std::to_string(i - 1);
    addFunction(b, "F" + std::to_string(i), {"a"}, {"r"},
                {call(before, {"a"}, {"t"}), call(before, {"t"}, {"r"})});
  }
  add(b, call("F40", {"x"}, {"y"}));
  EXPECT_THAT(importError(b.bytes()), HasSubstr("expand to more than"));
  ModelBuilder deep = withInput();
  addFunction(deep, "F0", {"a"}, {"r"}, {makeNode("Neg", {"a"}, {"r"})});
  for (int i = 1; i <= 100; ++i)
    addFunction(deep, "F" + std::to_string(i), {"a"}, {"r"},
                {call("F" + std::to_string(i - 1), {"a"}, {"r"})});
  add(deep, call("F100", {"x"}, {"y"}));
  EXPECT_THAT(importError(deep.bytes()), HasSubstr("more than 64 deep"));
}

TEST(Functions, MistakesAreNamed) {
  auto errorOf = [](const std::vector<onnx::NodeProto> &nodes, const onnx::NodeProto &node) {
    ModelBuilder b = withInput();
    addFunction(b, "F", {"a"}, {"r"}, nodes);
    add(b, node);
    return importError(b.bytes());
  };
  onnx::NodeProto good = call("F", {"x"}, {"y"}, "f");
  EXPECT_THAT(errorOf({makeNode("Neg", {"a"}, {"q"})}, good),
              HasSubstr("node 'f' (F): function 'local.F' does not define its output 'r'"));
  EXPECT_THAT(errorOf({makeNode("Neg", {"x"}, {"r"})}, good),
              HasSubstr("function 'local.F' reads 'x', which nothing in it defines"));
  EXPECT_THAT(errorOf({makeNode("Neg", {"a"}, {"r"})}, call("F", {"x", "x"}, {"y"}, "f")),
              HasSubstr("has 2 inputs and 1 outputs"));
  EXPECT_THAT(errorOf({makeNode("Neg", {"a"}, {"a"})}, good), HasSubstr("defines 'a' twice"));
  EXPECT_THAT(errorOf({makeNode("Unheard", {"a"}, {"r"})}, good),
              HasSubstr("Unheard: f/Unheard_0"));
  ModelBuilder twice = withInput();
  for (int i = 0; i < 2; ++i)
    addFunction(twice, "F", {"a"}, {"r"}, {makeNode("Neg", {"a"}, {"r"})});
  add(twice, good);
  EXPECT_THAT(importError(twice.bytes()), HasSubstr("function 'local.F' is defined twice"));
}

} // namespace
