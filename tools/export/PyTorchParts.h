//===- PyTorchParts.h - Modules of the package tbc as text ------------------===//

#ifndef TBC_TOOLS_EXPORT_PYTORCHPARTS_H
#define TBC_TOOLS_EXPORT_PYTORCHPARTS_H

#include <string>
#include <utility>
#include <vector>

namespace tbc::exporter {

/// Returns modules of python/tbc by name with their text, each after those that it uses. Example:
/// "torch/mesh".
const std::vector<std::pair<std::string, std::string>> &pythonParts();

} // namespace tbc::exporter

#endif // TBC_TOOLS_EXPORT_PYTORCHPARTS_H
