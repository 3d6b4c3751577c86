//===- Functions.h - Inline local functions and rename bodies --------------===//

#ifndef TBC_FRONTEND_ONNX_FUNCTIONS_H
#define TBC_FRONTEND_ONNX_FUNCTIONS_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// Fills `model.nodes` with the nodes of the graph, in the order of the file and with unique names.
///
/// A call of a local function is replaced by the function's nodes. Node and value names become
/// "call/inner". Attribute references take the call's value or the default. Each node keeps the
/// operator set imported by its function. A local function overrides an op of tbc with the same
/// domain and name. Example: node "add" in a call "layer.0" becomes "layer.0/add".
///
/// Bodies of control flow get unique value names. A name in a body refers to the innermost
/// enclosing graph that defines it; a function does not see the values of its caller.
///
/// Errors (ImportError): functions that call themselves, are defined twice, or expand beyond the
/// limit for the file's size; calls with more inputs or outputs than the function has; undefined
/// values.
void expandNodes(Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_FUNCTIONS_H
