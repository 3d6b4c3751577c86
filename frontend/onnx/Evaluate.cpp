//===- Evaluate.cpp - Evaluate elementwise ops at import -------------------===//

#include "frontend/onnx/Evaluate.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <limits>

namespace tbc::frontend {

namespace {

int64_t addInts(int64_t a, int64_t b) { return sumOf(a, b); }
int64_t subInts(int64_t a, int64_t b) {
  int64_t c;
  if (__builtin_sub_overflow(a, b, &c))
    throw ImportError("integer arithmetic on shapes overflows");
  return c;
}
int64_t mulInts(int64_t a, int64_t b) { return productOf(a, b); }
int64_t divInts(int64_t a, int64_t b) {
  if (b == 0)
    throw ImportError("integer division by zero");
  if (b == -1)
    return subInts(0, a);
  return a / b;
}
int64_t powInts(int64_t base, int64_t exponent) {
  if (exponent < 0)
    throw ImportError("integer power with a negative exponent");
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1)
      result = mulInts(result, base);
    if (exponent > 1)
      base = mulInts(base, base);
  }
  return result;
}

using UnaryReal = double (*)(double);
using BinaryReal = double (*)(double, double);
using BinaryInt = int64_t (*)(int64_t, int64_t);

UnaryReal unaryReal(llvm::StringRef op) {
  return llvm::StringSwitch<UnaryReal>(op)
      .Case("neg", [](double x) { return -x; })
      .Case("abs", [](double x) { return std::fabs(x); })
      .Case("exp", [](double x) { return std::exp(x); })
      .Case("log", [](double x) { return std::log(x); })
      .Case("sqrt", [](double x) { return std::sqrt(x); })
      .Case("rsqrt", [](double x) { return 1 / std::sqrt(x); })
      .Case("reciprocal", [](double x) { return 1 / x; })
      .Case("tanh", [](double x) { return std::tanh(x); })
      .Case("erf", [](double x) { return std::erf(x); })
      .Case("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); })
      .Case("relu", [](double x) { return x > 0 ? x : 0; })
      .Case("sin", [](double x) { return std::sin(x); })
      .Case("cos", [](double x) { return std::cos(x); })
      .Case("atan", [](double x) { return std::atan(x); })
      .Case("cast", [](double x) { return x; })
      .Case("floor", [](double x) { return std::floor(x); })
      .Case("ceil", [](double x) { return std::ceil(x); })
      .Case("round", [](double x) { return x - std::remainder(x, 1.0); })
      .Default(nullptr);
}

BinaryReal binaryReal(llvm::StringRef op) {
  return llvm::StringSwitch<BinaryReal>(op)
      .Case("add", [](double x, double y) { return x + y; })
      .Case("sub", [](double x, double y) { return x - y; })
      .Case("mul", [](double x, double y) { return x * y; })
      .Case("div", [](double x, double y) { return x / y; })
      .Case("pow", [](double x, double y) { return std::pow(x, y); })
      .Case("maximum", [](double x, double y) { return x >= y ? x : y; })
      .Case("minimum", [](double x, double y) { return x <= y ? x : y; })
      .Default(nullptr);
}

BinaryInt binaryInt(llvm::StringRef op) {
  return llvm::StringSwitch<BinaryInt>(op)
      .Case("add", addInts)
      .Case("sub", subInts)
      .Case("mul", mulInts)
      .Case("div", divInts)
      .Case("pow", powInts)
      .Case("mod",
            [](int64_t x, int64_t y) {
              if (y == 0)
                throw ImportError("integer modulus by zero");
              int64_t r = y == -1 ? 0 : x % y;
              return r != 0 && (r < 0) != (y < 0) ? r + y : r;
            })
      .Case("bitwise_and", [](int64_t x, int64_t y) { return x & y; })
      .Case("bitwise_or", [](int64_t x, int64_t y) { return x | y; })
      .Case("bitwise_xor", [](int64_t x, int64_t y) { return x ^ y; })
      .Case("maximum", [](int64_t x, int64_t y) { return std::max(x, y); })
      .Case("minimum", [](int64_t x, int64_t y) { return std::min(x, y); })
      .Case("and", [](int64_t x, int64_t y) { return int64_t(x && y); })
      .Case("or", [](int64_t x, int64_t y) { return int64_t(x || y); })
      .Case("xor", [](int64_t x, int64_t y) { return int64_t((x != 0) != (y != 0)); })
      .Default(nullptr);
}

template <typename T> bool holds(llvm::StringRef predicate, T x, T y) {
  if (predicate == "eq")
    return x == y;
  if (predicate == "ne")
    return x != y;
  if (predicate == "lt")
    return x < y;
  if (predicate == "le")
    return x <= y;
  if (predicate == "gt")
    return x > y;
  return x >= y;
}

/// Reads one operand at an index over the op's dims.
struct KnownReader {
  const Value &value;
  std::vector<size_t> positions; // of the core dims among the op's
  mutable Shape index;

  KnownReader(const Value &value, const std::vector<unsigned> &dims)
      : value(value), index(value.dims.size()) {
    for (unsigned dim : value.dims)
      positions.push_back(llvm::find(dims, dim) - dims.begin());
  }
  const Shape &at(const Shape &whole) const {
    for (size_t i = 0; i < positions.size(); ++i)
      index[i] = whole[positions[i]];
    return index;
  }
  int64_t integer(const Shape &whole) const { return value.known->intAt(at(whole)); }
  double real(const Shape &whole) const { return value.known->realAt(at(whole)); }
  bool isFloat() const { return value.known->isFloat(); }
};

/// ONNX does not define casts of numbers outside of the integer range. Models rely on PyTorch and
/// ONNX Runtime, which return the lowest integer (x86's cvttsd2si and cvttss2si). Example: T5's
/// buckets take the logarithm of distance 0 and later select another number.
int64_t realToInt(double x, DType resultType) {
  const double limit = resultType == DType::I32 ? 2147483648.0 : 9223372036854775808.0;
  double truncated = std::trunc(x);
  if (truncated >= -limit && truncated < limit)
    return int64_t(truncated);
  if (resultType != DType::I64 && resultType != DType::I32)
    throw ImportError("a number that is not finite or too large is converted to a narrow integer");
  return int64_t(-limit);
}

int64_t intElement(llvm::StringRef op, llvm::StringRef predicate,
                   const std::vector<KnownReader> &operands, const Shape &at, DType resultType) {
  const KnownReader &x = operands[0];
  if (op == "compare")
    return x.isFloat() ? holds(predicate, x.real(at), operands[1].real(at))
                       : holds(predicate, x.integer(at), operands[1].integer(at));
  if (op == "is_nan")
    return std::isnan(x.real(at));
  if (op == "cast") {
    if (resultType == DType::Bool)
      return x.isFloat() ? x.real(at) != 0 : x.integer(at) != 0;
    return x.isFloat() ? realToInt(x.real(at), resultType) : x.integer(at);
  }
  if (op == "select")
    return operands[x.integer(at) ? 1 : 2].integer(at);
  if (op == "not")
    return x.integer(at) == 0;
  if (op == "neg")
    return subInts(0, x.integer(at));
  if (op == "abs")
    return x.integer(at) < 0 ? subInts(0, x.integer(at)) : x.integer(at);
  if (op == "relu")
    return std::max<int64_t>(x.integer(at), 0);
  if (BinaryInt function = operands.size() == 2 ? binaryInt(op) : nullptr)
    return function(x.integer(at), operands[1].integer(at));
  throw ImportError("cannot compute integer '" + op.str() + "' at import");
}

double realElement(llvm::StringRef op, const std::vector<KnownReader> &operands, const Shape &at) {
  const KnownReader &x = operands[0];
  if (op == "select")
    return operands[x.integer(at) ? 1 : 2].real(at);
  if (UnaryReal function = operands.size() == 1 ? unaryReal(op) : nullptr)
    return function(x.real(at));
  if (BinaryReal function = operands.size() == 2 ? binaryReal(op) : nullptr)
    return function(x.real(at), operands[1].real(at));
  throw ImportError("cannot compute '" + op.str() + "' at import");
}

/// A known value as affine coefficients over `dims`; covers affine values and integer splats.
struct AffineForm {
  int64_t offset = 0;
  std::vector<int64_t> steps;
  bool isNumber = true;
};

std::optional<AffineForm> affineForm(const Value &value, const std::vector<unsigned> &dims) {
  const Known &known = *value.known;
  AffineForm form;
  form.steps.resize(dims.size(), 0);
  if (value.isSplat()) {
    double real = known.realAt({});
    if (known.isFloat() && (real != std::trunc(real) || std::fabs(real) > (1 << 24)))
      return std::nullopt;
    form.offset = known.isFloat() ? int64_t(real) : known.intAt({});
    return form;
  }
  if (!known.isAffine())
    return std::nullopt;
  form.offset = known.offset();
  form.isNumber = false;
  for (size_t i = 0; i < value.dims.size(); ++i)
    form.steps[llvm::find(dims, value.dims[i]) - dims.begin()] = known.coefficients()[i];
  return form;
}

/// Whether every number of the form is exact in `dtype`.
bool isExact(const AffineForm &form, const Shape &shape, DType dtype) {
  int64_t limit = dtype == DType::F64    ? int64_t(1) << 53
                  : dtype == DType::F32  ? int64_t(1) << 24
                  : dtype == DType::F16  ? int64_t(1) << 11
                  : dtype == DType::BF16 ? int64_t(1) << 8
                  : dtype == DType::I64  ? std::numeric_limits<int64_t>::max()
                  : dtype == DType::I32  ? int64_t(1) << 31
                                         : int64_t(1) << 7;
  __int128 low = form.offset, high = form.offset;
  for (size_t i = 0; i < shape.size(); ++i) {
    __int128 span = __int128(form.steps[i]) * (shape[i] - 1);
    (span < 0 ? low : high) += span;
  }
  return low > -__int128(limit) && high < __int128(limit);
}

} // namespace

std::optional<Known> evaluateAffine(llvm::StringRef mnemonic, const std::vector<Value> &operands,
                                    const std::vector<unsigned> &dims, const Shape &shape,
                                    DType resultType) {
  if (resultType == DType::Bool || dims.empty())
    return std::nullopt;
  std::vector<AffineForm> forms;
  for (const Value &operand : operands) {
    std::optional<AffineForm> form = affineForm(operand, dims);
    if (!form || operand.dtype == DType::Bool)
      return std::nullopt;
    forms.push_back(*form);
  }
  AffineForm result = forms[0];
  if (mnemonic == "add" || mnemonic == "sub") {
    auto combine = mnemonic == "add" ? addInts : subInts;
    result.offset = combine(result.offset, forms[1].offset);
    for (size_t i = 0; i < dims.size(); ++i)
      result.steps[i] = combine(result.steps[i], forms[1].steps[i]);
  } else if (mnemonic == "neg" || mnemonic == "mul") {
    if (mnemonic == "mul" && !forms[0].isNumber && !forms[1].isNumber)
      return std::nullopt;
    int64_t factor = mnemonic == "neg" ? -1 : forms[0].isNumber ? forms[0].offset : forms[1].offset;
    if (mnemonic == "mul" && forms[0].isNumber)
      result = forms[1];
    result.offset = mulInts(result.offset, factor);
    for (int64_t &step : result.steps)
      step = mulInts(step, factor);
  } else if (mnemonic != "cast") {
    return std::nullopt;
  }
  if (!isExact(result, shape, resultType))
    return std::nullopt;
  return Known::affine(shape, result.offset, result.steps, kernels::isFloat(resultType));
}

Known evaluate(llvm::StringRef mnemonic, llvm::StringRef predicate,
               const std::vector<Value> &operands, const std::vector<unsigned> &dims,
               const Shape &shape, DType resultType) {
  std::vector<KnownReader> readers;
  for (const Value &operand : operands)
    readers.emplace_back(operand, dims);
  if (kernels::isFloat(resultType)) {
    std::vector<double> elements;
    forEachIndex(shape, [&](const Shape &at) {
      elements.push_back(kernels::roundTo(resultType, realElement(mnemonic, readers, at)));
    });
    return Known::ofReals(shape, std::move(elements));
  }
  std::vector<int64_t> elements;
  forEachIndex(shape, [&](const Shape &at) {
    elements.push_back(
        kernels::wrapTo(resultType, intElement(mnemonic, predicate, readers, at, resultType)));
  });
  return Known::ofInts(shape, std::move(elements));
}

} // namespace tbc::frontend
