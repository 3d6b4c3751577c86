//===- Elementwise.cpp - Ops on each element, with numpy broadcasting ------===//

#include "frontend/onnx/Elementwise.h"

#include "frontend/onnx/Evaluate.h"
#include "frontend/onnx/Structure.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace tbc::frontend {

namespace {

/// Operands of equal rank, without unit dims in their cores, and the union of their dims.
struct Aligned {
  Shape shape;
  std::vector<Value> operands;
  std::vector<unsigned> dims;
};

Aligned align(Emitter &emitter, const std::vector<Value> &operands) {
  Aligned result;
  result.shape = broadcastShapes(operands, emitter.marker);
  for (const Value &operand : operands) {
    Value value = operand;
    // A unary op keeps the tensor's dims of size 1.
    if (operands.size() > 1 || value.shape != result.shape)
      value = expand(emitter, operand, result.shape);
    result.dims.insert(result.dims.end(), value.dims.begin(), value.dims.end());
    result.operands.push_back(value);
  }
  llvm::sort(result.dims);
  result.dims.erase(std::unique(result.dims.begin(), result.dims.end()), result.dims.end());
  return result;
}

/// Whether to compute the result of an op on known operands at import: it is no larger than its
/// operands, and not a float function of positions.
bool isWorthKnowing(const Aligned &aligned, bool isFloat) {
  int64_t elements = 1, largest = 1;
  for (unsigned dim : aligned.dims)
    if (__builtin_mul_overflow(elements, aligned.shape[dim], &elements))
      return false;
  for (const Value &operand : aligned.operands) {
    largest = std::max(largest, operand.known->numElements());
    if (isFloat && operand.known->isAffine() && operand.known->numElements() > 64)
      return false;
  }
  return elements <= largest && elements <= kMaxStoredElements;
}

std::optional<Value> evaluateKnown(llvm::StringRef mnemonic, const Aligned &aligned,
                                   DType resultType, llvm::StringRef predicate) {
  const std::vector<Value> &operands = aligned.operands;
  if (!llvm::all_of(operands, [](const Value &value) { return value.isKnown(); }))
    return std::nullopt;
  Value shape;
  shape.shape = aligned.shape;
  shape.dims = aligned.dims;
  Shape coreShape = shape.coreShape();
  if (std::optional<Known> affine =
          evaluateAffine(mnemonic, operands, aligned.dims, coreShape, resultType))
    return Value::ofKnown(resultType, aligned.shape, aligned.dims, *affine);
  bool isFloat =
      llvm::any_of(operands, [](const Value &value) { return kernels::isFloat(value.dtype); });
  if (!isWorthKnowing(aligned, isFloat))
    return std::nullopt;
  return Value::ofKnown(
      resultType, aligned.shape, aligned.dims,
      evaluate(mnemonic, predicate, operands, aligned.dims, coreShape, resultType));
}

/// Returns the operand if the other one is neutral, or a constant; nullopt if the op stays.
/// Example: x * 1 gives x.
std::optional<Value> simplify(llvm::StringRef mnemonic, const Aligned &aligned) {
  const std::vector<Value> &operands = aligned.operands;
  auto isNumber = [&](unsigned i, double number) {
    return operands[i].isSplat() && operands[i].splatReal() == number;
  };
  if (operands.size() == 2)
    for (unsigned i = 0; i < 2; ++i) {
      const Value &other = operands[1 - i];
      bool right = i == 1;
      if ((mnemonic == "and" && isNumber(i, 1)) || (mnemonic == "or" && isNumber(i, 0)) ||
          (mnemonic == "mul" && isNumber(i, 1)) || (mnemonic == "add" && isNumber(i, 0)) ||
          (right && mnemonic == "sub" && isNumber(i, 0)) ||
          (right && (mnemonic == "div" || mnemonic == "pow") && isNumber(i, 1)))
        return other;
      if ((mnemonic == "and" && isNumber(i, 0)) || (mnemonic == "or" && isNumber(i, 1)))
        return operands[i];
    }
  if (mnemonic == "select" && operands[0].isSplat())
    return operands[operands[0].splatInt() ? 1 : 2];
  return std::nullopt;
}

} // namespace

static Value emitElementwise(Emitter &emitter, llvm::StringRef mnemonic, const Aligned &aligned,
                             DType resultType, const Attributes &attributes) {
  llvm::SmallVector<mlir::Value> operands;
  Shape coreShape;
  for (unsigned dim : aligned.dims)
    coreShape.push_back(aligned.shape[dim]);
  for (const Value &operand : aligned.operands)
    operands.push_back(emitter.at(operand, aligned.dims));
  mlir::Value core =
      emitter.createOne(mnemonic, operands, emitter.type(resultType, coreShape), attributes);
  return Value::ofCore(resultType, aligned.shape, aligned.dims, core);
}

Value elementwise(Emitter &emitter, llvm::StringRef mnemonic, const std::vector<Value> &operands,
                  DType resultType, const Attributes &attributes) {
  Aligned aligned = align(emitter, operands);
  llvm::StringRef predicate;
  for (mlir::NamedAttribute attribute : attributes)
    if (attribute.getName() == "predicate")
      predicate = llvm::cast<mlir::StringAttr>(attribute.getValue());
  if (std::optional<Value> known = evaluateKnown(mnemonic, aligned, resultType, predicate))
    return *known;
  if (std::optional<Value> simple = simplify(mnemonic, aligned))
    return *simple;
  if (!llvm::all_of(operands, [](const Value &value) { return value.isKnown(); }))
    return emitElementwise(emitter, mnemonic, aligned, resultType, attributes);

  // The result of known operands may be used for its shape alone. It is emitted at its first use,
  // at this node's location.
  Value result = Value::ofCore(resultType, aligned.shape, aligned.dims, {});
  result.emitted = std::make_shared<mlir::Value>();
  result.deferred = [&emitter, op = mnemonic.str(), aligned, resultType, attributes,
                     loc = emitter.location()] {
    mlir::Location current = emitter.location();
    emitter.setLocation(loc);
    mlir::Value core = emitElementwise(emitter, op, aligned, resultType, attributes).ir;
    emitter.setLocation(current);
    return core;
  };
  return result;
}

Value compare(Emitter &emitter, llvm::StringRef predicate, const Value &a, const Value &b) {
  return elementwise(emitter, "compare", {a, b}, DType::Bool,
                     {emitter.text("predicate", predicate)});
}

Value select(Emitter &emitter, const Value &condition, const Value &a, const Value &b) {
  return elementwise(emitter, "select", {condition, a, b}, a.dtype);
}

Value cast(Emitter &emitter, const Value &value, DType dtype) {
  if (value.dtype == dtype)
    return value;
  return elementwise(emitter, "cast", {value}, dtype);
}

} // namespace tbc::frontend
