//===- Families.h - Functions shared by families of importers --------------===//

#ifndef TBC_FRONTEND_ONNX_OPS_FAMILIES_H
#define TBC_FRONTEND_ONNX_OPS_FAMILIES_H

#include "frontend/onnx/NodeContext.h"

namespace tbc::frontend {

/// Sums products over labelled logical dims. Each dim has one label; labels missing in `out` are
/// summed. Example: labels {0, 1}, {1, 2} and out {0, 2} are a matmul.
Value einsum(Emitter &emitter, const Value &a, const std::vector<int64_t> &aLabels, const Value &b,
             const std::vector<int64_t> &bLabels, const std::vector<int64_t> &outLabels);

/// numpy's matmul.
Value matmul(Emitter &emitter, const Value &a, const Value &b);

/// `reduce_sum` or `reduce_max` over logical dims, which stay with size 1 if `keepDims`.
Value reduce(Emitter &emitter, llvm::StringRef mnemonic, const Value &value,
             const std::vector<unsigned> &axes, bool keepDims);
/// Returns the product over logical dims.
Value reduceProduct(Emitter &emitter, Value value, const std::vector<unsigned> &axes,
                    bool keepDims);
Value reduceMean(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                 bool keepDims);

/// Returns the softmax over one logical dim.
Value softmax(Emitter &emitter, const Value &value, unsigned axis);

/// Returns `value`'s core, extended by the dims `axes` even if the value repeats along them. Sets
/// `dims` to its dims.
mlir::Value coreWith(Emitter &emitter, const Value &value, const std::vector<unsigned> &axes,
                     std::vector<unsigned> &dims);

/// Returns the shape of a node's result; ImportError for negative sizes and too many dims.
Shape checkedShape(const std::vector<int64_t> &sizes);

/// Returns a tensor with offset + step * i at position i of dim `dim`.
Value positions(const Shape &shape, unsigned dim, int64_t offset = 0, int64_t step = 1);

/// Pads dim `axis` with `low` zeros in front and `high` behind; both are >= 0.
Value padZeros(Emitter &emitter, const Value &value, unsigned axis, int64_t low, int64_t high);

/// ImportError unless `value` holds integers.
void requireIndices(const Value &value);

/// Returns for each element of `indices` the element of `data` at that index along `axis`; the
/// other dims are equal.
Value gatherElements(Emitter &emitter, const Value &data, const Value &indices, unsigned axis);

/// Samples an image at positions of a grid; in a file of its own.
void importGridSample(NodeContext &node);
/// Convolves samples at positions that are moved by data.
void importDeformConv(NodeContext &node);

/// Activations shared with recurrent ops; their importers state the formulas.
Value softplus(Formula &f, const Value &x);
Value softsign(Formula &f, const Value &x);
Value elu(Formula &f, const Value &x, double alpha);
Value leakyRelu(Formula &f, const Value &x, double alpha);
Value thresholdedRelu(Formula &f, const Value &x, double alpha);
Value hardSigmoid(Formula &f, const Value &x, double alpha, double beta);

/// Returns log(softmax(x)) along a dim: z - log(sum(exp(z))), z = x - stabilizer_max(x).
Value logSoftmax(Emitter &emitter, const Value &x, unsigned axis);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_OPS_FAMILIES_H
