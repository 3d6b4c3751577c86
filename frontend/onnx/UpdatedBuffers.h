//===- UpdatedBuffers.h - Buffers that a module updates -------------------===//

#ifndef TBC_FRONTEND_ONNX_UPDATEDBUFFERS_H
#define TBC_FRONTEND_ONNX_UPDATEDBUFFERS_H

#include "frontend/onnx/Model.h"

#include <optional>
#include <string>

namespace tbc::frontend {

/// Returns a warning if forward of the module updates buffers, of which a file has the values of
/// the export alone. Dynamo's exporter names them in the signature of the graph. Statistics of
/// batch norms are left out: nodes have them, or training does not read them. Example: a centre of
/// outputs that each forward moves, or the vectors of a power iteration.
std::optional<std::string> updatedBuffersWarning(const Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_UPDATEDBUFFERS_H
