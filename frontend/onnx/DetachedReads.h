//===- DetachedReads.h - Reads of values that PyTorch detaches -*- C++ -*-===//
//
// ONNX has no op for `x.detach()`. torch's newer exporter lets the readers read x itself, and keeps
// their calls beside them: "args = (%detach, %y)". There the operand that no argument names is x.
//
// Its optimizer joins equal nodes, such as f(x) and f(x.detach()), and keeps one of the two calls.
// Readers of the other still name its result: "args = (%relu_3, %z)" for a value relu_1. Where a
// detached value goes into such results, the calls do not tell what PyTorch detaches.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_DETACHEDREADS_H
#define TBC_FRONTEND_ONNX_DETACHEDREADS_H

#include "frontend/onnx/Model.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tbc::frontend {

/// The reads of detached values in the graph of a model.
class DetachedReads {
public:
  /// `noGrad`: the nodes under torch.no_grad() (NoGradNodes.h). They read detached values.
  DetachedReads(const Model &model, std::set<const onnx::NodeProto *> noGrad);

  /// Whether `node` reads a detached value.
  bool concerns(const GraphNode &node) const {
    return calls.count(node.proto) != 0 || noGrad.count(node.proto) != 0;
  }
  /// Returns the numbers of the inputs of `node` that PyTorch has detached. `hasGradient` tells
  /// whether a gradient could pass an input. Example: {0} for Add(x, y) of "args = (%detach, %y)".
  std::vector<unsigned> of(const GraphNode &node, llvm::function_ref<bool(unsigned)> hasGradient);

  /// Warnings: the nodes with such reads, and those where the calls do not tell.
  std::vector<std::string> warnings() const;

private:
  /// A call in PyTorch that reads detached values.
  struct Call {
    std::string text;
    /// The values it reads, in order. Example: {"detach", "y"}.
    std::vector<std::string> arguments;
  };
  void findJoined(const Model &model);
  /// Whether `argument` is a detached value that the file has no op for.
  bool isDetached(const std::string &argument) const;
  /// Returns the inputs of a node under torch.no_grad() that come from outside.
  std::vector<unsigned> ofNoGrad(const GraphNode &node,
                                 llvm::function_ref<bool(unsigned)> hasGradient);
  /// Returns the inputs by their places among the arguments; empty if these do not fit.
  std::vector<unsigned> byPlace(const onnx::NodeProto &node, const Call &call) const;

  std::set<const onnx::NodeProto *> noGrad;
  std::map<const onnx::NodeProto *, Call> calls;
  /// The nodes whose results go into one that was joined with an equal one.
  std::set<const onnx::NodeProto *> joined;
  /// All values of the graph; those that nodes compute have their node.
  std::map<std::string, const onnx::NodeProto *> values;
  /// Detached values whose readers are found, and those with the node of a reader that is unclear.
  std::set<std::string> found;
  std::map<std::string, std::string> unclear;
  std::vector<std::string> readers;
  /// Nodes under torch.no_grad() that were joined with others.
  std::vector<std::string> joinedNoGrad;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_DETACHEDREADS_H
