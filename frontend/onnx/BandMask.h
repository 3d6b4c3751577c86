//===- BandMask.h - Masks of initializers as positions ---------*- C++ -*-===//

#ifndef TBC_FRONTEND_ONNX_BANDMASK_H
#define TBC_FRONTEND_ONNX_BANDMASK_H

#include "frontend/onnx/Emitter.h"
#include "frontend/onnx/ImportedModel.h"

namespace tbc::frontend {

/// Returns the mask `source`, a band (`bandOf`), as a predicate over positions of queries and keys,
/// without a table. Example: [1, 16, 1024, 1024] booleans become k <= q.
Value bandMask(Emitter &emitter, const ParameterSource &source);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_BANDMASK_H
