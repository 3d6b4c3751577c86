//===- Identity.h - Identity of a model without its weights -----------------===//

#ifndef TBC_FRONTEND_ONNX_IDENTITY_H
#define TBC_FRONTEND_ONNX_IDENTITY_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// Returns the SHA-256, in hexadecimal, of a model's structure: its nodes in the file's order (op
/// type, domain, names of inputs and outputs, attributes), and every initializer's name, element
/// type and shape. Elements of tensors and documentation strings are excluded. So the identity
/// survives training, and a new export with other initial weights.
///
/// Example: an MLP with Relu and the same MLP with Tanh have equal parameters and different
/// identities.
std::string identityOf(const Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_IDENTITY_H
