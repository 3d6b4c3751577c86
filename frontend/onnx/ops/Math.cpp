//===- Math.cpp - Elementwise ops ------------------------------------------===//

#include "frontend/onnx/NodeContext.h"

#include <cmath>
#include <limits>

namespace tbc::frontend {

namespace {

void requireOneType(const std::vector<Value> &values) {
  for (const Value &value : values)
    if (value.dtype != values[0].dtype)
      throw ImportError("combines a tensor of " + std::string(kernels::name(values[0].dtype)) +
                        " with one of " + std::string(kernels::name(value.dtype)));
}

void requireFloat(const Value &value) {
  if (!kernels::isFloat(value.dtype))
    throw ImportError("needs a float tensor, not one of " +
                      std::string(kernels::name(value.dtype)));
}

void requireBool(const Value &value) {
  if (value.dtype != DType::Bool)
    throw ImportError("needs a boolean tensor, not one of " +
                      std::string(kernels::name(value.dtype)));
}

void importNot(NodeContext &node) {
  requireBool(node.input(0));
  node.setOutput(0, elementwise(node.emitter, "not", {node.input(0)}));
}

/// And, Or.
void importLogic(NodeContext &node, llvm::StringRef mnemonic) {
  requireBool(node.input(0));
  requireBool(node.input(1));
  node.setOutput(0, elementwise(node.emitter, mnemonic, {node.input(0), node.input(1)}));
}

void importUnary(NodeContext &node, llvm::StringRef mnemonic) {
  node.setOutput(0, elementwise(node.emitter, mnemonic, {node.input(0)}));
}

void importFloatUnary(NodeContext &node, llvm::StringRef mnemonic) {
  requireFloat(node.input(0));
  importUnary(node, mnemonic);
}

void importBinary(NodeContext &node, llvm::StringRef mnemonic) {
  std::vector<Value> inputs{node.input(0), node.input(1)};
  requireOneType(inputs);
  if (inputs[0].dtype == DType::Bool)
    throw ImportError("does arithmetic on booleans");
  node.setOutput(0, elementwise(node.emitter, mnemonic, inputs));
}

/// Max, Min, Sum: any number of inputs.
void importVariadic(NodeContext &node, llvm::StringRef mnemonic) {
  std::vector<Value> inputs = node.allInputs();
  requireOneType(inputs);
  Value result = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i)
    result = elementwise(node.emitter, mnemonic, {result, inputs[i]});
  node.setOutput(0, result);
}

void importMean(NodeContext &node) {
  importVariadic(node, "add");
  const Value &sum = node.results()[0];
  node.setOutput(0, elementwise(node.emitter, "div", {sum, number(sum, double(node.numInputs()))}));
}

void importCompare(NodeContext &node, llvm::StringRef predicate) {
  std::vector<Value> inputs{node.input(0), node.input(1)};
  requireOneType(inputs);
  node.setOutput(0, compare(node.emitter, predicate, inputs[0], inputs[1]));
}

void importWhere(NodeContext &node) {
  requireBool(node.input(0));
  requireOneType({node.input(1), node.input(2)});
  node.setOutput(0, select(node.emitter, node.input(0), node.input(1), node.input(2)));
}

void importPow(NodeContext &node) {
  Value exponent = cast(node.emitter, node.input(1), node.input(0).dtype);
  node.setOutput(0, elementwise(node.emitter, "pow", {node.input(0), exponent}));
}

void importCast(NodeContext &node) {
  DType dtype = dtypeOfOnnx(int32_t(node.attrInt("to", 0)), "the target of Cast");
  node.setOutput(0, cast(node.emitter, node.input(0), dtype));
}

void importCastLike(NodeContext &node) {
  node.setOutput(0, cast(node.emitter, node.input(0), node.input(1).dtype));
}

void importClip(NodeContext &node) {
  Value value = node.input(0);
  if (node.hasInput(1))
    value = elementwise(node.emitter, "maximum", {value, node.input(1)});
  if (node.hasInput(2))
    value = elementwise(node.emitter, "minimum", {value, node.input(2)});
  node.setOutput(0, value);
}

void importGelu(NodeContext &node) {
  requireFloat(node.input(0));
  std::string approximate = node.attrText("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    throw ImportError("unknown approximation '" + approximate + "'");
  node.setOutput(0, elementwise(node.emitter, "gelu", {node.input(0)}, node.input(0).dtype,
                                {node.emitter.text("approximate", approximate)}));
}

/// x where x > 0, alpha * x elsewhere.
void importLeakyRelu(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloat(x);
  Value scaled = elementwise(node.emitter, "mul", {x, number(x, node.attrFloat("alpha", 0.01))});
  Value positive = compare(node.emitter, "gt", x, number(x, 0));
  node.setOutput(0, select(node.emitter, positive, x, scaled));
}

/// log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|)).
void importSoftplus(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloat(x);
  Emitter &e = node.emitter;
  Value decay = elementwise(e, "exp", {elementwise(e, "neg", {elementwise(e, "abs", {x})})});
  Value tail = elementwise(e, "log", {elementwise(e, "add", {number(x, 1), decay})});
  node.setOutput(0, elementwise(e, "add", {elementwise(e, "relu", {x}), tail}));
}

/// x * max(0, min(1, alpha * x + beta)) with `alpha` 1/6 and `beta` 1/2.
void importHardSwish(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloat(x);
  Emitter &e = node.emitter;
  Value line =
      elementwise(e, "add", {elementwise(e, "mul", {x, number(x, 1.0 / 6)}), number(x, 0.5)});
  Value gate =
      elementwise(e, "minimum", {elementwise(e, "maximum", {line, number(x, 0)}), number(x, 1)});
  node.setOutput(0, elementwise(e, "mul", {x, gate}));
}

void importHardSigmoid(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloat(x);
  Emitter &e = node.emitter;
  Value line = elementwise(e, "add",
                           {elementwise(e, "mul", {x, number(x, node.attrFloat("alpha", 0.2))}),
                            number(x, node.attrFloat("beta", 0.5))});
  node.setOutput(0, elementwise(e, "minimum",
                                {elementwise(e, "maximum", {line, number(x, 0)}), number(x, 1)}));
}

void importSwish(NodeContext &node) {
  const Value &x = node.input(0);
  requireFloat(x);
  Emitter &e = node.emitter;
  double alpha = node.attrFloat("alpha", 1.0);
  if (alpha == 1)
    return node.setOutput(0, elementwise(e, "silu", {x}));
  Value gate = elementwise(e, "sigmoid", {elementwise(e, "mul", {x, number(x, alpha)})});
  node.setOutput(0, elementwise(e, "mul", {x, gate}));
}

void importIsNan(NodeContext &node) {
  requireFloat(node.input(0));
  node.setOutput(0, elementwise(node.emitter, "is_nan", {node.input(0)}, DType::Bool));
}

void importIdentity(NodeContext &node) { node.setOutput(0, node.input(0)); }

/// Identity: there is no dropout op yet.
void importDropout(NodeContext &node) {
  bool trains = node.hasInput(2) && node.scalar(2) != 0;
  double ratio = node.hasInput(1) ? node.scalar(1) : 0.5;
  if (trains && ratio != 0)
    node.warn("is left out: dropout is not supported yet, so training runs without it");
  node.setOutput(0, node.input(0));
  if (node.wantsOutput(1))
    node.setOutput(1, Value::ofSplat(DType::Bool, node.input(0).shape, 1));
}

void importMod(NodeContext &node) {
  if (node.attrInt("fmod", 0) != 0)
    throw ImportError("Mod with fmod = 1 is not supported");
  importBinary(node, "mod");
}

void importXor(NodeContext &node) {
  requireBool(node.input(0));
  requireBool(node.input(1));
  Emitter &e = node.emitter;
  const Value &a = node.input(0), &b = node.input(1);
  Value one = elementwise(e, "or", {a, b}), both = elementwise(e, "and", {a, b});
  node.setOutput(0, elementwise(e, "and", {one, elementwise(e, "not", {both})}));
}

} // namespace

#define UNARY(TYPE, MNEMONIC) {"", TYPE, [](NodeContext &node) { importUnary(node, MNEMONIC); }}
#define FLOAT_UNARY(TYPE, MNEMONIC)                                                                \
  {"", TYPE, [](NodeContext &node) { importFloatUnary(node, MNEMONIC); }}
#define BINARY(TYPE, MNEMONIC) {"", TYPE, [](NodeContext &node) { importBinary(node, MNEMONIC); }}
#define VARIADIC(TYPE, MNEMONIC)                                                                   \
  {"", TYPE, [](NodeContext &node) { importVariadic(node, MNEMONIC); }}
#define COMPARE(TYPE, PREDICATE)                                                                   \
  {"", TYPE, [](NodeContext &node) { importCompare(node, PREDICATE); }}

llvm::ArrayRef<OpImporter> mathOps() {
  static const OpImporter ops[] = {
      UNARY("Neg", "neg"),
      UNARY("Abs", "abs"),
      {"", "Not", importNot},
      UNARY("Relu", "relu"),
      FLOAT_UNARY("Exp", "exp"),
      FLOAT_UNARY("Log", "log"),
      FLOAT_UNARY("Sqrt", "sqrt"),
      FLOAT_UNARY("Reciprocal", "reciprocal"),
      FLOAT_UNARY("Tanh", "tanh"),
      FLOAT_UNARY("Erf", "erf"),
      FLOAT_UNARY("Sigmoid", "sigmoid"),
      FLOAT_UNARY("Sin", "sin"),
      FLOAT_UNARY("Cos", "cos"),
      FLOAT_UNARY("Atan", "atan"),
      FLOAT_UNARY("Floor", "floor"),
      FLOAT_UNARY("Ceil", "ceil"),
      BINARY("Add", "add"),
      BINARY("Sub", "sub"),
      BINARY("Mul", "mul"),
      BINARY("Div", "div"),
      {"", "And", [](NodeContext &node) { importLogic(node, "and"); }},
      {"", "Or", [](NodeContext &node) { importLogic(node, "or"); }},
      VARIADIC("Max", "maximum"),
      VARIADIC("Min", "minimum"),
      VARIADIC("Sum", "add"),
      COMPARE("Equal", "eq"),
      COMPARE("Less", "lt"),
      COMPARE("LessOrEqual", "le"),
      COMPARE("Greater", "gt"),
      COMPARE("GreaterOrEqual", "ge"),
      {"", "Cast", importCast},
      {"", "CastLike", importCastLike},
      {"", "Clip", importClip},
      {"", "Dropout", importDropout},
      {"", "Gelu", importGelu},
      {"", "HardSigmoid", importHardSigmoid},
      {"", "HardSwish", importHardSwish},
      {"", "Identity", importIdentity},
      {"", "IsNaN", importIsNan},
      {"", "LeakyRelu", importLeakyRelu},
      {"", "Mean", importMean},
      {"", "Mod", importMod},
      {"", "Pow", importPow},
      {"", "Softplus", importSoftplus},
      {"", "Swish", importSwish},
      {"", "Where", importWhere},
      {"", "Xor", importXor},
  };
  return ops;
}

} // namespace tbc::frontend
