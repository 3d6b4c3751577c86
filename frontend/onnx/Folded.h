//===- Folded.h - Names of tensors that an exporter folded -----------------===//

#ifndef TBC_FRONTEND_ONNX_FOLDED_H
#define TBC_FRONTEND_ONNX_FOLDED_H

#include <string>
#include <utility>

namespace tbc::frontend {

/// Splits "bn1.weight" into "bn1." and "weight".
std::pair<std::string, std::string> splitName(const std::string &name);

/// Whether `own` is the name of a tensor of a norm within its module.
bool isNormTensor(const std::string &own);

/// Whether the exporter names so the result of an op that only moves elements. Examples: "slice_4",
/// "permute_1", and "val_7", its own transpose of a weight.
bool isMovedName(const std::string &name);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_FOLDED_H
