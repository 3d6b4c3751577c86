//===- Elementwise.h - Ops on each element, with numpy broadcasting --------===//

#ifndef TBC_FRONTEND_ONNX_ELEMENTWISE_H
#define TBC_FRONTEND_ONNX_ELEMENTWISE_H

#include "frontend/onnx/Emitter.h"

namespace tbc::frontend {

/// The tbc op `mnemonic` on broadcast operands; computed at once where all are known.
///
/// Known operands stay known unless their product of dims would make a table out of ranges or lists
/// (a causal mask, rotary angles): that is emitted as ops on small operands. Constant booleans and
/// neutral elements (x * 1, x + 0, p and true, a constant condition) vanish.
Value elementwise(Emitter &emitter, llvm::StringRef mnemonic, const std::vector<Value> &operands,
                  DType resultType, const Attributes &attributes = {});

/// The same where the result has the type of the first operand.
inline Value elementwise(Emitter &emitter, llvm::StringRef mnemonic,
                         const std::vector<Value> &operands) {
  return elementwise(emitter, mnemonic, operands, operands[0].dtype);
}

Value compare(Emitter &emitter, llvm::StringRef predicate, const Value &a, const Value &b);
Value select(Emitter &emitter, const Value &condition, const Value &a, const Value &b);
Value cast(Emitter &emitter, const Value &value, DType dtype);
/// A number of the type of `like`, of rank 0.
inline Value number(const Value &like, double value) {
  return Value::ofSplat(like.dtype, {}, value);
}

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_ELEMENTWISE_H
