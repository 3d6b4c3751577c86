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
/// The product over logical dims.
Value reduceProduct(Emitter &emitter, Value value, const std::vector<unsigned> &axes,
                    bool keepDims);
Value reduceMean(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                 bool keepDims);

/// softmax over one logical dim.
Value softmax(Emitter &emitter, const Value &value, unsigned axis);

/// `value`'s core with the dim `axis` in it even if the value repeats along it; `dims` are its
/// dims.
mlir::Value coreWith(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                     std::vector<unsigned> &dims);

/// A shape that a node makes; ImportError for negative sizes and too many dims.
Shape checkedShape(const std::vector<int64_t> &sizes);

/// offset + step * i at place i of dim `dim`.
Value positions(const Shape &shape, unsigned dim, int64_t offset = 0, int64_t step = 1);

/// Zeros put in front of (`low`) and behind dim `axis`, none of them negative.
Value padZeros(Emitter &emitter, const Value &value, unsigned axis, int64_t low, int64_t high);

/// ImportError unless `value` holds integers.
void requireIndices(const Value &value);

/// At each place of `indices` the element of `data` that it chooses along `axis`; the other dims
/// are the same.
Value gatherElements(Emitter &emitter, const Value &data, const Value &indices, unsigned axis);

/// Activations that recurrent ops name too; see their importers for the formulas.
Value softplus(Formula &f, const Value &x);
Value softsign(Formula &f, const Value &x);
Value elu(Formula &f, const Value &x, double alpha);
Value leakyRelu(Formula &f, const Value &x, double alpha);
Value thresholdedRelu(Formula &f, const Value &x, double alpha);
Value hardSigmoid(Formula &f, const Value &x, double alpha, double beta);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_FAMILIES_H
