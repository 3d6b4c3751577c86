//===- Identity.h - Which model a file holds, whatever its weights ----------===//

#ifndef TBC_FRONTEND_ONNX_IDENTITY_H
#define TBC_FRONTEND_ONNX_IDENTITY_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// SHA-256, in hexadecimal, of what makes the model what it is: its nodes in the file's order (op
/// type, domain, names of inputs and outputs, attributes), and name, element type and shape of
/// every initializer. The elements of tensors do not count, nor do documentation strings, so that a
/// model keeps its identity while it is trained, and when the same code exports it with other
/// initial weights.
///
/// Example: an MLP with Relu and the same MLP with Tanh have equal parameters and different
/// identities.
std::string identityOf(const Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_IDENTITY_H
