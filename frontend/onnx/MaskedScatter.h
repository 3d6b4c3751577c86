//===- MaskedScatter.h - Features put at masked places ---------------------===//
//
// torch.Tensor.masked_scatter and `x[mask] = features` put the rows of a tensor at the places where
// a mask is true, in order. Models of pictures and text put the features of a picture at its tokens
// so. Exporters write NonZero and ScatterND, and the number of the places depends on data.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_MASKEDSCATTER_H
#define TBC_FRONTEND_ONNX_MASKEDSCATTER_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// Replaces the nodes of each masked scatter by a node `MaskedScatter` of the domain tbc, with the
/// inputs data, mask and source.
///
/// Example: ScatterND(x, Transpose(NonZero(mask)), Slice(Reshape(f, [-1]), 0, count)), where
/// `count` is the number of nonzero elements, becomes MaskedScatter(x, mask, Reshape(f, [-1])).
///
/// If the updates are computed from selected elements, each by itself, they are computed for all
/// places, and the node is `MaskedAssign` with the inputs data, mask and updates. Example:
/// `area[mask] = width[mask] * height[mask]` becomes MaskedAssign(area, mask, width * height).
///
/// Other updates that are computed from selected rows stay: experts add their results so
/// (Selection.h).
void joinMaskedScatters(Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MASKEDSCATTER_H
