//===- CustomFunctions.h - torch.autograd.Function in a file ---*- C++ -*-===//
//
// Exporters write the forward of a torch.autograd.Function, and no file has its backward. torch's
// newer exporter keeps stack traces, and they show such a call: "context = Cumulation.apply(q, k)",
// with a frame in `forward` below.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_CUSTOMFUNCTIONS_H
#define TBC_FRONTEND_ONNX_CUSTOMFUNCTIONS_H

#include "frontend/onnx/Model.h"

#include <string>
#include <vector>

namespace tbc::frontend {

/// Returns a warning for each custom function in the stack traces of nodes.
std::vector<std::string> customFunctionWarnings(const Model &model);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_CUSTOMFUNCTIONS_H
