//===- Indexing.h - Gather and related ops ---------------------------------===//

#ifndef TBC_FRONTEND_ONNX_INDEXING_H
#define TBC_FRONTEND_ONNX_INDEXING_H

#include "frontend/onnx/Emitter.h"

#include <optional>

namespace tbc::frontend {

/// Returns the rows of `data` along `axis` at `indices`; the dims of `indices` replace `axis`.
///
/// Known indices that are a range become a slice. Known indices that enumerate a flattened dim (row
/// b * s + j) undo the flattening. So an index over the batch disappears if it selects each
/// sample's own row; otherwise it is an error.
Value gather(Emitter &emitter, const Value &data, const Value &indices, unsigned axis);

/// Merges coordinates along dims of `sizes`, listed in the last dim of `indices`, into one
/// row-major index. Coordinates may be negative. Example: (1, 2) in sizes [3, 4] is 6.
Value flatIndices(Emitter &emitter, const Value &indices, const Shape &sizes);

/// A rectangle of a tensor's leading dims: in each `size` places from `begin`, `step` apart.
struct IndexBlock {
  Shape begin, size, step;
};

/// Returns the block that `indices`, known coordinates of the leading dims of `sizes`, list in
/// order; nullopt for others. Example: coordinates (i, 2 j + 1), i < 3 and j < 4, are the block
/// from (0, 1) of 3 x 4 in steps of 1 and 2.
std::optional<IndexBlock> blockOfIndices(Emitter &emitter, const Value &indices,
                                         const Shape &sizes);

/// Returns known coordinates of the rows [batch, ...] of a tensor of leading dims `sizes`, where
/// `indices` number the samples of the export: coordinate 0 is 0 .. n - 1 along dim 0, and dim 0 of
/// the tensor is the batch. Others are unchanged. Example: (0, 3), (1, 3) for sizes [batch, 8] are
/// (b, 3) of each sample b.
Value ofEachSample(Emitter &emitter, const Value &indices, const Shape &sizes);

/// Returns the coordinates of `indices` behind the first, if that is the sample's own number along
/// dim 0 and others are data; nullopt for others. Example: (b, y[b]) of x[arange(batch), y] gives
/// [batch, 1] with y[b].
std::optional<Value> indicesInSamples(Emitter &emitter, const Value &data, const Value &indices);

/// ONNX GatherND: the last dim of `indices` lists coordinates of the leading dims of `data`.
Value gatherNd(Emitter &emitter, const Value &data, const Value &indices, int64_t batchDims);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_INDEXING_H
