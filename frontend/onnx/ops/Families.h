//===- Families.h - What families of importers lend each other -------------===//

#ifndef TBC_FRONTEND_ONNX_OPS_FAMILIES_H
#define TBC_FRONTEND_ONNX_OPS_FAMILIES_H

#include "frontend/onnx/NodeContext.h"

namespace tbc::frontend {

/// Sum of products over labelled logical dims: one label per dim, those not in `out` are summed.
Value einsum(Emitter &emitter, const Value &a, const std::vector<int64_t> &aLabels, const Value &b,
             const std::vector<int64_t> &bLabels, const std::vector<int64_t> &outLabels);

/// numpy's matmul.
Value matmul(Emitter &emitter, const Value &a, const Value &b);

/// `reduce_sum` or `reduce_max` over logical dims, which stay with size 1 if `keepDims`.
Value reduce(Emitter &emitter, llvm::StringRef mnemonic, const Value &value,
             const std::vector<unsigned> &axes, bool keepDims);
Value reduceMean(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                 bool keepDims);

/// softmax over one logical dim.
Value softmax(Emitter &emitter, const Value &value, unsigned axis);

/// `value`'s core with the dim `axis` in it even if the value repeats along it; `dims` are its
/// dims.
mlir::Value coreWith(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                     std::vector<unsigned> &dims);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_FAMILIES_H
