//===- ModulePath.h - Module path of a node --------------------------------===//

#ifndef TBC_FRONTEND_ONNX_MODULEPATH_H
#define TBC_FRONTEND_ONNX_MODULEPATH_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// Returns the module path of a node, empty if unknown. It comes from the metadata of torch's newer
/// exporter, else from a node name in the form of a path, as its older exporter writes it. Example:
/// "transformer.h.0.attn".
std::string modulePath(const GraphNode &node);

/// Returns the strings of a list as Python prints it. Example: "['a', 'b']".
std::vector<std::string> listedStrings(const std::string &text);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MODULEPATH_H
