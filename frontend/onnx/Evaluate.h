//===- Evaluate.h - Elementwise ops on known values ------------------------===//

#ifndef TBC_FRONTEND_ONNX_EVALUATE_H
#define TBC_FRONTEND_ONNX_EVALUATE_H

#include "frontend/onnx/Value.h"

#include "llvm/ADT/StringRef.h"

#include <optional>

namespace tbc::frontend {

/// The result of an op on affine operands where it is affine again (+, -, times a number, negation,
/// casts), over the logical dims `dims` of sizes `shape`.
std::optional<Known> evaluateAffine(llvm::StringRef mnemonic, const std::vector<Value> &operands,
                                    const std::vector<unsigned> &dims, const Shape &shape,
                                    DType resultType);

/// The elements of an op on known operands, computed in `resultType` (comparisons: that of the
/// operands). ImportError for an op that is not known here, and for division by zero.
Known evaluate(llvm::StringRef mnemonic, llvm::StringRef predicate,
               const std::vector<Value> &operands, const std::vector<unsigned> &dims,
               const Shape &shape, DType resultType);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_EVALUATE_H
