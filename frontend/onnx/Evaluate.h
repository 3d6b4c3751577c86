//===- Evaluate.h - Evaluate elementwise ops at import ---------------------===//

#ifndef TBC_FRONTEND_ONNX_EVALUATE_H
#define TBC_FRONTEND_ONNX_EVALUATE_H

#include "frontend/onnx/Value.h"

#include "llvm/ADT/StringRef.h"

#include <optional>

namespace tbc::frontend {

/// Returns the result of an op on affine operands, over the logical dims `dims` of sizes `shape`;
/// nullopt unless it is affine (+, -, times a number, negation, casts). Example: 2 * [0, 1, 2, ..]
/// + 1 is affine.
std::optional<Known> evaluateAffine(llvm::StringRef mnemonic, const std::vector<Value> &operands,
                                    const std::vector<unsigned> &dims, const Shape &shape,
                                    DType resultType);

/// Returns the elements of an op on known operands, computed in `resultType` (comparisons: in the
/// type of the operands). ImportError for an unsupported op and for division by zero.
Known evaluate(llvm::StringRef mnemonic, llvm::StringRef predicate,
               const std::vector<Value> &operands, const std::vector<unsigned> &dims,
               const Shape &shape, DType resultType);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_EVALUATE_H
