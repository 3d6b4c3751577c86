//===- ModulePath.h - Which module of the exported program a node is in ----===//

#ifndef TBC_FRONTEND_ONNX_MODULEPATH_H
#define TBC_FRONTEND_ONNX_MODULEPATH_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// e.g. "transformer.h.0.attn": from what torch's newer exporter leaves in the node's metadata,
/// else from the node's name where that is a path, as its older exporter writes them. Empty where
/// the file does not tell.
std::string modulePath(const GraphNode &node);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MODULEPATH_H
