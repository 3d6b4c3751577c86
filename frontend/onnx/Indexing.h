//===- Indexing.h - Gather and its kin -------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_INDEXING_H
#define TBC_FRONTEND_ONNX_INDEXING_H

#include "frontend/onnx/Emitter.h"

namespace tbc::frontend {

/// The rows of `data` along `axis` at `indices`, whose dims replace `axis`.
///
/// Known indices that are a range become a slice; those that count through a dim that was flattened
/// (row b * s + j) undo the flattening. So an index over the batch that selects the sample's own
/// row disappears; any other is an error.
Value gather(Emitter &emitter, const Value &data, const Value &indices, unsigned axis);

/// One index for coordinates along dims of `sizes`, which the last dim of `indices` lists: the
/// place among those dims taken as one, in row-major order. Coordinates may be negative.
Value flatIndices(Emitter &emitter, const Value &indices, const Shape &sizes);

/// ONNX GatherND: the last dim of `indices` lists coordinates of the leading dims of `data`.
Value gatherNd(Emitter &emitter, const Value &data, const Value &indices, int64_t batchDims);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_INDEXING_H
