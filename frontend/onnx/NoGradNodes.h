//===- NoGradNodes.h - Nodes that PyTorch runs under no_grad -*- C++ -*-===//
//
// torch's newer exporter makes a function of its own of what runs under torch.no_grad() or
// torch.autocast(). The stack trace of such a node is one line of that function:
//
//   File "<eval_with_key>.68", line 5, in forward
//     linear_1 = torch.ops.aten.linear.default(x, p_t_weight, p_t_bias);  x = ..
//
// Under no_grad the line has the names of inputs and of tensors of the module, as the call in the
// metadata has: "args = (%x, %p_t_weight, %p_t_bias)". Under autocast they are arg0_1, arg1_1. A
// function that reads neither may be of either. A reentrant torch.utils.checkpoint looks like
// no_grad, and so does all that follows it, up to the outputs.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_NOGRADNODES_H
#define TBC_FRONTEND_ONNX_NOGRADNODES_H

#include "frontend/onnx/Model.h"
#include "frontend/onnx/Parameters.h"

#include <set>
#include <string>
#include <vector>

namespace tbc::frontend {

/// Returns the nodes of the graph that PyTorch runs under torch.no_grad() as far as stack traces
/// tell, and that read a value computed from `parameters`: others have no gradient anyway.
std::set<const onnx::NodeProto *> noGradNodes(const Model &model, const Parameters &parameters);

/// Warns of the nodes that noGradNodes returns, and of those that may be under torch.no_grad().
std::vector<std::string> noGradWarnings(const Model &model, const Parameters &parameters);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_NOGRADNODES_H
