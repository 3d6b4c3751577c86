//===- PerSample.h - Loops over samples as ops on the batch ----------------===//
//
// Exporters write nn.EmbeddingBag, and Python loops over samples, as a Loop with one iteration per
// sample. Iterations that use no results of each other are one run over the batch: each value that
// depends on the iteration gets a dim 0 for all of them. Example: x[i] of x [batch, 8] is x, and a
// sum of x[i] over dim 0 is one of x over dim 1.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_PERSAMPLE_H
#define TBC_FRONTEND_ONNX_PERSAMPLE_H

#include "frontend/onnx/NodeContext.h"

namespace tbc::frontend {

/// Whether an input of the node has such a dim 0 (Value::perSample).
bool readsSamples(const NodeContext &node);

/// Imports the node, which its graph means for one iteration, for all of them. ImportError for an
/// op without such a form.
void importPerSample(NodeContext &node, const OpImporter &importer);

/// Imports a Loop that runs `count` times, a multiple of the batch. ImportError if an iteration
/// needs a result of the one before it, other than a counter or a list to which each adds a tensor.
void importSampleLoop(NodeContext &node, int64_t count);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_PERSAMPLE_H
