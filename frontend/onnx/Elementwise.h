//===- Elementwise.h - Ops on each element, with numpy broadcasting --------===//

#ifndef TBC_FRONTEND_ONNX_ELEMENTWISE_H
#define TBC_FRONTEND_ONNX_ELEMENTWISE_H

#include "frontend/onnx/Emitter.h"

namespace tbc::frontend {

/// Returns the result of the tbc op `mnemonic` on broadcast operands; computed at import if all are
/// known.
///
/// Known operands stay known unless broadcasting would make a table from ranges or lists (a causal
/// mask, rotary angles). Such an op is emitted on the small operands. Constant booleans and neutral
/// elements (x * 1, x + 0, p and true, a constant condition) are folded.
Value elementwise(Emitter &emitter, llvm::StringRef mnemonic, const std::vector<Value> &operands,
                  DType resultType, const Attributes &attributes = {});

/// The same, with the result type of the first operand.
inline Value elementwise(Emitter &emitter, llvm::StringRef mnemonic,
                         const std::vector<Value> &operands) {
  return elementwise(emitter, mnemonic, operands, operands[0].dtype);
}

Value compare(Emitter &emitter, llvm::StringRef predicate, const Value &a, const Value &b);
Value select(Emitter &emitter, const Value &condition, const Value &a, const Value &b);
Value cast(Emitter &emitter, const Value &value, DType dtype);
/// Returns a scalar constant in the type of `like`.
inline Value number(const Value &like, double value) {
  return Value::ofSplat(like.dtype, {}, value);
}

/// Builds elementwise ops on values, so that code reads like the formula. All operands of one op
/// have one dtype. Example: f.mul(x, f.sigmoid(x)) is SiLU.
struct Formula {
  Emitter &emitter;

  Value neg(const Value &x) { return elementwise(emitter, "neg", {x}); }
  Value abs(const Value &x) { return elementwise(emitter, "abs", {x}); }
  Value exp(const Value &x) { return elementwise(emitter, "exp", {x}); }
  Value log(const Value &x) { return elementwise(emitter, "log", {x}); }
  Value sqrt(const Value &x) { return elementwise(emitter, "sqrt", {x}); }
  Value rsqrt(const Value &x) { return elementwise(emitter, "rsqrt", {x}); }
  Value tanh(const Value &x) { return elementwise(emitter, "tanh", {x}); }
  Value sigmoid(const Value &x) { return elementwise(emitter, "sigmoid", {x}); }
  Value relu(const Value &x) { return elementwise(emitter, "relu", {x}); }
  Value atan(const Value &x) { return elementwise(emitter, "atan", {x}); }
  Value sin(const Value &x) { return elementwise(emitter, "sin", {x}); }
  Value cos(const Value &x) { return elementwise(emitter, "cos", {x}); }
  Value floor(const Value &x) { return elementwise(emitter, "floor", {x}); }
  Value ceil(const Value &x) { return elementwise(emitter, "ceil", {x}); }
  Value round(const Value &x) { return elementwise(emitter, "round", {x}); }
  Value isNan(const Value &x) { return elementwise(emitter, "is_nan", {x}, DType::Bool); }
  Value add(const Value &x, const Value &y) { return elementwise(emitter, "add", {x, y}); }
  Value sub(const Value &x, const Value &y) { return elementwise(emitter, "sub", {x, y}); }
  Value mul(const Value &x, const Value &y) { return elementwise(emitter, "mul", {x, y}); }
  Value div(const Value &x, const Value &y) { return elementwise(emitter, "div", {x, y}); }
  Value pow(const Value &x, const Value &y) { return elementwise(emitter, "pow", {x, y}); }
  Value maximum(const Value &x, const Value &y) { return elementwise(emitter, "maximum", {x, y}); }
  Value minimum(const Value &x, const Value &y) { return elementwise(emitter, "minimum", {x, y}); }
  /// Logical ops on booleans.
  Value both(const Value &p, const Value &q) { return elementwise(emitter, "and", {p, q}); }
  Value either(const Value &p, const Value &q) { return elementwise(emitter, "or", {p, q}); }
  Value negation(const Value &p) { return elementwise(emitter, "not", {p}); }
  Value compare(llvm::StringRef predicate, const Value &x, const Value &y) {
    return frontend::compare(emitter, predicate, x, y);
  }
  Value select(const Value &condition, const Value &x, const Value &y) {
    return frontend::select(emitter, condition, x, y);
  }
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_ELEMENTWISE_H
