//===- Batch.h - Replace the batch marker by the batch size ----------------===//

#ifndef TBC_FRONTEND_ONNX_BATCH_H
#define TBC_FRONTEND_ONNX_BATCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace tbc::frontend {

/// Replaces the factor `marker` in every size of `function` by `batch`, also in the parts of a dim
/// that joins samples with other rows. ImportError if a tensor becomes too large. Examples: with
/// marker 97 and batch 8, tensor<970x4xf32> becomes tensor<80x4xf32>, and 97 scores beside one
/// column, tensor<97x98xf32>, become tensor<8x9xf32>.
void bindBatch(mlir::func::FuncOp function, int64_t marker, int64_t batch);

/// Returns "node 'NAME'", the ONNX node of `op`; `otherwise` if it has none.
std::string nodeOf(mlir::Operation *op, const std::string &otherwise);

/// Checks a whole model at a marker. Samples may meet in scores of all pairs, with a dim for each
/// of the two: a plan then takes the batch as one micro-batch. Returns a warning that says so, or
/// "" if they do not meet. `tableOverBatch` is the message about a table over the batch
/// (Emitter::tableOverBatch): it needs such scores, so that its positions are those of the batch.
///
/// ImportError: a dim that lists all pairs, such as [marker, marker] reshaped to [marker * marker];
/// a table without scores.
std::string checkMeetings(mlir::func::FuncOp function, int64_t marker,
                          const std::string &tableOverBatch);

/// Returns the end of a message about a node that takes the samples of the batch one by one.
std::string perSampleRemedy();

/// The rest of the message about a node that computes with the batch size as a number.
std::string batchAsNumber();

/// The rest of the message about a node that takes some samples of the batch by their places.
std::string placesOfSamples();

/// On a factor_size that stands for a number of the file, until checkMeetings.
inline constexpr llvm::StringLiteral kSampleCountAttr = "tbc.sample_count";

/// Returns true if two tensors are computed by equal ops from the same values. Example: two sums of
/// one tensor over the same dims.
bool areSame(mlir::Value a, mlir::Value b);

/// Returns the first op of `a` that differs from its counterpart in `b` (operands, attributes or
/// result types); null if the functions are equal.
///
/// A model imported at two markers and bound to one batch gives equal functions if and only if no
/// value in it was computed from the batch size.
mlir::Operation *firstDifference(mlir::func::FuncOp a, mlir::func::FuncOp b);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_BATCH_H
