//===- TorchCalls.h - The calls in PyTorch that nodes come from -*- C++ -*-===//
//
// torch's newer exporter keeps the calls of a node beside it, with the names of what they read:
// "%div : [num_users=1] = call_function[target=torch.ops.aten.div.Tensor](args = (%x, %add), ...".
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_TORCHCALLS_H
#define TBC_FRONTEND_ONNX_TORCHCALLS_H

#include "frontend/onnx/Model.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace tbc::frontend {

/// Calls `visit` with the text of each call of `node`, and with the values that it reads, in order.
/// Example: {"x", "add"} of the call above.
void forEachTorchCall(
    const onnx::NodeProto &node,
    llvm::function_ref<void(const std::string &text, const std::vector<std::string> &reads)> visit);

/// Whether PyTorch gives `name` to the results of `op`. Examples for "add": add, add_1, add__2.
bool isTorchResultOf(llvm::StringRef op, llvm::StringRef name);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_TORCHCALLS_H
