//===- Math.cpp - Elementwise ops ------------------------------------------===//

#include "frontend/onnx/Detach.h"
#include "frontend/onnx/NodeContext.h"
#include "ir/Elementwise.h"
#include "ir/Indexing.h"

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

/// log(exp(a) + exp(b)), as exporters write PyTorch's logaddexp, without an overflow:
/// max(a, b) + log(1 + exp(min(a, b) - max(a, b))). Two infinities have the difference 0. Undefined
/// if `x` is no such sum.
Value logOfTwoExponentials(Emitter &emitter, const Value &x) {
  auto sum = x.ir ? x.ir.getDefiningOp<AddOp>() : AddOp();
  auto left = sum ? sum->getOperand(0).getDefiningOp<ExpOp>() : ExpOp();
  auto right = sum ? sum->getOperand(1).getDefiningOp<ExpOp>() : ExpOp();
  if (!left || !right)
    return {};
  Formula f{emitter};
  Value a = Value::ofCore(x.dtype, x.shape, x.dims, left->getOperand(0));
  Value b = Value::ofCore(x.dtype, x.shape, x.dims, right->getOperand(0));
  Value larger = f.maximum(a, b);
  Value difference = f.select(f.compare("eq", a, b), number(a, 0), f.sub(f.minimum(a, b), larger));
  return f.add(larger, f.log(f.add(f.exp(difference), number(a, 1))));
}

/// log(x). For log(sigmoid(z)), as exporters write PyTorch's logsigmoid, sigmoid must not
/// underflow: log(sigmoid(max(z, -c))) + min(z + c, 0), where log(sigmoid(z)) rounds to z below -c.
void importLog(NodeContext &node) {
  const Value &x = node.input(0);
  if (Value logarithm = logOfTwoExponentials(node.emitter, x); logarithm.isDefined())
    return node.setOutput(0, logarithm);
  auto sigmoid = x.ir ? x.ir.getDefiningOp<SigmoidOp>() : SigmoidOp();
  if (!sigmoid)
    return importFloatUnary(node, "log");
  Formula f{node.emitter};
  Value z = Value::ofCore(x.dtype, x.shape, x.dims, sigmoid.getInput());
  double c = x.dtype == DType::F16 ? 9 : 30;
  Value logarithm = f.log(f.sigmoid(f.maximum(z, number(z, -c))));
  node.setOutput(0, f.add(logarithm, f.minimum(f.add(z, number(z, c)), number(z, 0))));
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

/// Whether `value` holds places of elements, which are 0 or more.
bool isPlaces(const Value &value) {
  auto sort = value.ir ? value.ir.getDefiningOp<TopKOp>() : TopKOp();
  return sort && value.ir == sort.getIndices();
}

/// Exporters write a floor division of integers for both signs: where places are compared with 0,
/// the answer is known.
void importCompare(NodeContext &node, llvm::StringRef predicate) {
  std::vector<Value> inputs{node.input(0), node.input(1)};
  requireOneType(inputs);
  if (predicate == "lt" && isPlaces(inputs[0]) && inputs[1].isSplat() &&
      !inputs[1].known->isFloat() && inputs[1].splatInt() <= 0)
    return node.setOutput(0, Value::ofSplat(DType::Bool, inputs[0].shape, 0));
  node.setOutput(0, compare(node.emitter, predicate, inputs[0], inputs[1]));
}

void importWhere(NodeContext &node) {
  requireBool(node.input(0));
  requireOneType({node.input(1), node.input(2)});
  node.setOutput(0, select(node.emitter, node.input(0), node.input(1), node.input(2)));
}

/// The result has the type of the base. A power of an integer by a float is computed in floats.
/// Example: 9 to the power of 0.5 is 3.
/// A root of floats, by a power between 0 and 1, has the slope 0 at 0, as Sqrt and PyTorch's norms
/// and distances have: exporters write these so.
void importPow(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &base = node.input(0), &exponent = node.input(1);
  const double root = exponent.isSplat() ? exponent.splatReal() : 1;
  if (kernels::isFloat(base.dtype) && root > 0 && root < 1 && base.dtype == exponent.dtype) {
    if (root == 0.5)
      return node.setOutput(0, elementwise(e, "sqrt", {base}));
    Formula f{e};
    Value isZero = f.compare("eq", base, number(base, 0));
    Value power = elementwise(e, "pow", {f.select(isZero, number(base, 1), base), exponent});
    return node.setOutput(0, f.select(isZero, number(power, 0), power));
  }
  bool isMixed = !kernels::isFloat(base.dtype) && kernels::isFloat(exponent.dtype);
  DType dtype = isMixed ? DType::F64 : base.dtype;
  Value power = elementwise(e, "pow", {cast(e, base, dtype), cast(e, exponent, dtype)});
  node.setOutput(0, cast(e, power, base.dtype));
}

void importCast(NodeContext &node) {
  DType dtype = dtypeOfOnnx(int32_t(node.attrInt("to", 0)), "the target of Cast");
  node.setOutput(0, cast(node.emitter, node.input(0), dtype));
}

/// Integers of one width in two's complement: the numbers that have the same low bits.
void importBitCast(NodeContext &node) {
  const Value &value = node.input(0);
  DType dtype = dtypeOfOnnx(int32_t(node.attrInt("to", 0)), "the target of BitCast");
  bool hasFloats = kernels::isFloat(value.dtype) || kernels::isFloat(dtype);
  if (hasFloats && value.dtype != dtype)
    throw ImportError("reads or makes the bits of floats, which have no gradient; export the model "
                      "with arithmetic instead");
  if (kernels::byteWidth(value.dtype) != kernels::byteWidth(dtype) ||
      (dtype == DType::Bool && value.dtype != dtype))
    throw ImportError("makes " + std::string(kernels::name(dtype)) + " of " +
                      std::string(kernels::name(value.dtype)) + ", which has another width");
  node.setOutput(0, cast(node.emitter, value, dtype));
}

void importCastLike(NodeContext &node) {
  node.setOutput(0, cast(node.emitter, node.input(0), node.input(1).dtype));
}

/// PyTorch's clamp has the slope 1 at its bounds, and hardtanh and relu6 have 0. Files of torch's
/// newer exporter tell them apart.
void importClip(NodeContext &node) {
  Value value = node.input(0);
  const std::string op = node.torchOp();
  if (op == "aten.hardtanh.default" || op == "aten.relu6.default") {
    Formula f{node.emitter};
    for (auto [bound, predicate] : {std::pair(1, "le"), std::pair(2, "ge")})
      if (node.hasInput(bound))
        value = f.select(f.compare(predicate, value, node.input(bound)), node.input(bound), value);
    return node.setOutput(0, value);
  }
  if (node.hasInput(1))
    value = elementwise(node.emitter, "maximum", {value, node.input(1)});
  if (node.hasInput(2))
    value = elementwise(node.emitter, "minimum", {value, node.input(2)});
  node.setOutput(0, value);
}

void importIsNan(NodeContext &node) {
  requireFloat(node.input(0));
  node.setOutput(0, elementwise(node.emitter, "is_nan", {node.input(0)}, DType::Bool));
}

/// torch's newer exporter writes detach() as an Identity, which its optimizer removes.
void importIdentity(NodeContext &node) {
  const bool isDetach = llvm::StringRef(node.torchOp()).starts_with("aten.detach");
  node.setOutput(0, isDetach ? detach(node.emitter, node.anyInput(0)) : node.anyInput(0));
}

/// Remainder of truncated float division, with the sign of `x`, also for zeros; x / infinity leaves
/// x. Example: -7 and 3 give -1.
Value truncatedRest(Formula &f, const Value &x, const Value &y) {
  Value quotient = f.div(x, y), zero = number(x, 0);
  Value whole = f.select(f.compare("lt", quotient, zero), f.ceil(quotient), f.floor(quotient));
  Value isZero = f.compare("eq", whole, zero);
  Value rest = f.select(isZero, x, f.sub(x, f.mul(whole, y)));
  return f.select(f.compare("eq", rest, zero), f.mul(x, zero), rest);
}

/// Mod: the remainder of floor division, with the sign of the divisor; with `fmod`, of truncated
/// division, with the sign of the dividend. Example: -7 mod 3 is 2, with `fmod` -1.
void importMod(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0), &y = node.input(1);
  requireOneType({x, y});
  bool isFloat = kernels::isFloat(x.dtype), truncates = node.attrInt("fmod", 0) != 0;
  if (!isFloat && !truncates && x.isKnown() && y.isKnown())
    return node.setOutput(0, elementwise(f.emitter, "mod", {x, y}));
  Value zero = number(x, 0);
  Value rest = isFloat ? truncatedRest(f, x, y) : f.sub(x, f.mul(f.div(x, y), y));
  if (truncates)
    return node.setOutput(0, rest);
  Value restIsNegative = f.compare("lt", rest, zero), yIsNegative = f.compare("lt", y, zero);
  Value isNonZero = f.compare("ne", rest, zero);
  Value signsDiffer = f.either(f.both(restIsNegative, f.negation(yIsNegative)),
                               f.both(f.negation(restIsNegative), yIsNegative));
  Value result = f.select(f.both(isNonZero, signsDiffer), f.add(rest, y), rest);
  // A zero has the sign of the divisor.
  node.setOutput(0, isFloat ? f.select(isNonZero, result, f.div(f.abs(rest), y)) : result);
}

void importXor(NodeContext &node) {
  Formula f{node.emitter};
  const Value &a = node.input(0), &b = node.input(1);
  requireBool(a);
  requireBool(b);
  node.setOutput(0, f.both(f.either(a, b), f.negation(f.both(a, b))));
}

/// -1, 0 or 1; NaN stays.
void importSign(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  Value zero = number(x, 0);
  Value positive = f.select(f.compare("gt", x, zero), number(x, 1), f.mul(x, zero));
  node.setOutput(0, f.select(f.compare("lt", x, zero), number(x, -1), positive));
}

/// x - x is NaN only for infinities and NaN.
void importIsInf(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  requireFloat(x);
  Value isInf = f.both(f.isNan(f.sub(x, x)), f.negation(f.isNan(x)));
  if (!node.attrInt("detect_positive", 1))
    isInf = f.both(isInf, f.compare("lt", x, number(x, 0)));
  if (!node.attrInt("detect_negative", 1))
    isInf = f.both(isInf, f.compare("gt", x, number(x, 0)));
  node.setOutput(0, isInf);
}

//===- trigonometry --------------------------------------------------------===//

/// Imports a function of one float tensor.
template <Value (*function)(Formula &, const Value &)> void importFunction(NodeContext &node) {
  Formula f{node.emitter};
  requireFloat(node.input(0));
  node.setOutput(0, function(f, node.input(0)));
}

Value one(const Value &x) { return number(x, 1); }

Value tan(Formula &f, const Value &x) { return f.div(f.sin(x), f.cos(x)); }

/// atan(x / sqrt((1 - x) (1 + x)))
Value asin(Formula &f, const Value &x) {
  return f.atan(f.div(x, f.sqrt(f.mul(f.sub(one(x), x), f.add(one(x), x)))));
}

/// 2 atan(sqrt((1 - x) / (1 + x)))
Value acos(Formula &f, const Value &x) {
  return f.mul(number(x, 2), f.atan(f.sqrt(f.div(f.sub(one(x), x), f.add(one(x), x)))));
}

Value cosh(Formula &f, const Value &x) {
  return f.mul(number(x, 0.5), f.add(f.exp(x), f.exp(f.neg(x))));
}

/// tanh(x) cosh(x), which is exact near zero.
Value sinh(Formula &f, const Value &x) { return f.mul(f.tanh(x), cosh(f, x)); }

/// log(|x| + sqrt(x^2 + 1)) with the sign of x.
Value asinh(Formula &f, const Value &x) {
  Value size = f.abs(x);
  Value positive = f.log(f.add(size, f.sqrt(f.add(f.mul(x, x), one(x)))));
  return f.select(f.compare("lt", x, number(x, 0)), f.neg(positive), positive);
}

/// log(x + sqrt((x - 1) (x + 1)))
Value acosh(Formula &f, const Value &x) {
  return f.log(f.add(x, f.sqrt(f.mul(f.sub(x, one(x)), f.add(x, one(x))))));
}

/// log((1 + x) / (1 - x)) / 2
Value atanh(Formula &f, const Value &x) {
  return f.mul(number(x, 0.5), f.log(f.div(f.add(one(x), x), f.sub(one(x), x))));
}

//===- bits ----------------------------------------------------------------===//

void requireInteger(const Value &value) {
  if (kernels::isFloat(value.dtype) || value.dtype == DType::Bool)
    throw ImportError("needs an integer tensor, not one of " +
                      std::string(kernels::name(value.dtype)));
}

void importBitwise(NodeContext &node, llvm::StringRef mnemonic) {
  requireInteger(node.input(0));
  importBinary(node, mnemonic);
}

bool isSignedInteger(DType dtype) { return kernels::wrapTo(dtype, -1) < 0; }

/// Returns all bits set: -1, or the largest unsigned number.
Value allBits(const Value &like) {
  return Value::ofKnown(like.dtype, Known::ofInt(kernels::wrapTo(like.dtype, -1)));
}

/// -1 - x; for unsigned types the largest number minus x.
void importBitwiseNot(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  requireInteger(x);
  node.setOutput(0, f.sub(allBits(x), x));
}

/// Shifts are multiplications and divisions by powers of two. A right shift rounds negative numbers
/// down. A shift by a negative number, or by the type's width or more, leaves only the sign.
void importBitShift(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0), &bits = node.input(1);
  requireInteger(x);
  requireOneType({x, bits});
  std::string direction = node.attrText("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    throw ImportError("shifts in direction '" + direction + "'; expected LEFT or RIGHT");
  Value zero = number(x, 0), two = number(x, 2);
  bool isSigned = isSignedInteger(x.dtype);
  int64_t width = 8 * kernels::byteWidth(x.dtype);
  // The largest power of two of the type; a signed type can shift by one bit more.
  Value largest = number(x, double(width - (isSigned ? 2 : 1)));
  Value power = f.pow(two, f.maximum(f.minimum(bits, largest), zero));
  Value isOneMore = f.compare("eq", bits, number(x, double(width - 1)));
  Value isBeyond = f.either(f.compare("gt", bits, largest), f.compare("lt", bits, zero));
  if (direction == "LEFT") {
    Value shifted = f.mul(x, power), rest = zero;
    if (isSigned)
      rest = f.select(isOneMore, f.mul(shifted, two), zero);
    return node.setOutput(0, f.select(isBeyond, rest, shifted));
  }
  Value shifted = f.select(isBeyond, zero, f.div(x, power));
  if (!isSigned)
    return node.setOutput(0, shifted);
  Value flipped = f.sub(allBits(x), x);
  Value negative = f.sub(allBits(x), f.select(isBeyond, zero, f.div(flipped, power)));
  node.setOutput(0, f.select(f.compare("lt", x, zero), negative, shifted));
}

/// torch's newer exporter writes sinc(x) as where(x == 0, 1, sin(πx) / πx). There the quotient has
/// no slope at 0, where PyTorch has 0.
void importDiv(NodeContext &node) {
  if (node.torchOp() != "aten.sinc.default")
    return importBinary(node, "div");
  Formula f{node.emitter};
  const Value &angle = node.input(1);
  Value isZero = f.compare("eq", angle, number(angle, 0));
  node.setOutput(0, f.div(node.input(0), f.select(isZero, number(angle, 1), angle)));
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
      {"", "Log", importLog},
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
      FLOAT_UNARY("Round", "round"),
      BINARY("Add", "add"),
      BINARY("Sub", "sub"),
      BINARY("Mul", "mul"),
      {"", "Div", importDiv},
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
      // Options of float8 types, which are refused.
      {"", "Cast", importCast, "round_mode saturate", kView},
      {"", "CastLike", importCastLike, "round_mode saturate", kView},
      {"", "Clip", importClip},
      {"", "Identity", importIdentity, "", kView},
      {"", "IsNaN", importIsNan},
      {"", "Mean", importMean},
      {"", "Mod", importMod},
      {"", "Pow", importPow},
      {"", "Where", importWhere},
      {"", "Xor", importXor},
      {"", "IsInf", importIsInf},
      {"", "Sign", importSign},
      {"", "Acos", importFunction<acos>},
      {"", "Acosh", importFunction<acosh>},
      {"", "Asin", importFunction<asin>},
      {"", "Asinh", importFunction<asinh>},
      {"", "Atanh", importFunction<atanh>},
      {"", "Cosh", importFunction<cosh>},
      {"", "Sinh", importFunction<sinh>},
      {"", "Tan", importFunction<tan>},
      {"", "BitwiseAnd", [](NodeContext &node) { importBitwise(node, "bitwise_and"); }},
      {"", "BitwiseOr", [](NodeContext &node) { importBitwise(node, "bitwise_or"); }},
      {"", "BitwiseXor", [](NodeContext &node) { importBitwise(node, "bitwise_xor"); }},
      {"", "BitwiseNot", importBitwiseNot},
      {"", "BitCast", importBitCast},
      {"", "BitShift", importBitShift},
  };
  return ops;
}

} // namespace tbc::frontend
