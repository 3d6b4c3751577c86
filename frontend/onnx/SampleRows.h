//===- SampleRows.h - Rows chosen in each sample by one flat index ---------===//
//
// `x[torch.arange(batch), i]` takes row i[b] of sample b: the last token, or the one of the end of
// a text. PyTorch's older exporter merges the two dims and gathers at b * rows + i[b], an index
// that numbers the samples.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_SAMPLEROWS_H
#define TBC_FRONTEND_ONNX_SAMPLEROWS_H

#include "frontend/onnx/Emitter.h"

namespace tbc::frontend {

/// Replaces each gather of `block` by a flat index over samples and their rows by a gather within
/// each sample.
///
/// Example: gather(reshape(x [batch, 9, 32] to [9 * batch, 32]), i + 9 * iota) becomes
/// gather_elements(x, i [batch, 1, 32], dim 1). For x [9, batch, 32], whose flat index is
/// i * batch + iota, x is transposed first.
void gatherWithinSamples(Emitter &emitter, mlir::Block &block);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SAMPLEROWS_H
