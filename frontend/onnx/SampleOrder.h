//===- SampleOrder.h - Sorts of the samples that are undone ----------------===//
//
// A packed sequence takes its samples by length. Exporters write a sort of the lengths over the
// batch, a Gather of each input by its indices, and behind the recurrence a Gather by the inverse
// order. An op that treats each sample by itself gives the same results in every order, so the
// samples keep their own, and each rank has its part of the batch.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_SAMPLEORDER_H
#define TBC_FRONTEND_ONNX_SAMPLEORDER_H

#include "mlir/IR/Block.h"

namespace tbc::frontend {

/// Removes each sort of all samples of `block`, or of all their rows, where no result depends on
/// the order. Other sorts stay. `marker`: the batch size of the import.
///
/// Example: order = topk(lengths), y = lstm(gather(x, order), gather(lengths, order)) and
/// gather(y, inverse(order)) become y = lstm(x, lengths). A mean of y over the batch needs no
/// inverse. An output that is y itself does.
///
/// Example: order = topk(experts [8 * batch]), y = gather(x [4 * batch, 32], order / 2), of two
/// choices for each token, and gather(f(y), inverse(order)) become f(each row of x twice).
void undoSampleSorts(mlir::Block &block, int64_t marker);

/// Returns true if an op of `block` numbers the samples: an iota over the batch.
bool numbersSamples(mlir::Block &block, int64_t marker);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SAMPLEORDER_H
