//===- Functions.h - Local functions put in place, bodies renamed ----------===//

#ifndef TBC_FRONTEND_ONNX_FUNCTIONS_H
#define TBC_FRONTEND_ONNX_FUNCTIONS_H

#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// Fills `model.nodes` with the nodes of the graph, in the order of the file and with unique names.
///
/// A call of a local function is replaced by the function's nodes: node and value names become
/// "call/inner", attributes by reference take the call's or the default value, and each node keeps
/// the operator set that its function imports. A function that the model defines is meant wherever
/// its domain and name stand, also if tbc knows an op of that name.
///
/// Bodies of control flow get value names of their own. A name in a body means the value of the
/// innermost graph that defines it; a function sees nothing of the graph that calls it.
///
/// Errors (ImportError): functions that call themselves, are defined twice, or expand to more than
/// the file can account for; calls with more inputs or outputs than the function has; values that
/// nothing defines.
void expandNodes(Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_FUNCTIONS_H
