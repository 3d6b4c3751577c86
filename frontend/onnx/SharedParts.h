//===- SharedParts.h - Tensors that hold the same elements of one ----------===//

#ifndef TBC_FRONTEND_ONNX_SHAREDPARTS_H
#define TBC_FRONTEND_ONNX_SHAREDPARTS_H

#include "frontend/onnx/ImportedModel.h"

#include <string>
#include <vector>

namespace tbc::frontend {

/// Returns the names of parts that share elements with another part. Ops that only move elements
/// have made all parts of one tensor. A slab is all elements at one index of a dim, or 4 elements
/// in a row of a vector. Two parts share elements if a slab of one is a slab of the other, or is
/// all of it. A slab has at least 4 elements, and not all of one value: equal zeros may be two
/// slabs of the tensor.
///
/// Only the first 4 Mi elements of a part are read; none if its data is missing.
///
/// Example: p[:6] and p[:9] of p [32, 16] share their rows 0 to 5, and p[:6] and p[6:] share none.
std::vector<std::string> sharedParts(const std::vector<const ParameterSource *> &parts);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SHAREDPARTS_H
