//===- Model.h - A parsed and checked ONNX model ---------------------------===//

#ifndef TBC_FRONTEND_ONNX_MODEL_H
#define TBC_FRONTEND_ONNX_MODEL_H

#include "frontend/onnx/Known.h"
#include "frontend/onnx/Scan.h"

#include "onnx/onnx.pb.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tbc::frontend {

struct Body;

/// A node in execution order. Calls of local functions are replaced by their bodies, as nodes named
/// "call/inner".
struct GraphNode {
  const onnx::NodeProto *proto = nullptr;
  /// The node's name, made unique; without one its op type and number.
  std::string name;
  /// The version of the standard operator set of its op.
  int64_t opset = 0;
  /// The graphs among its attributes.
  std::vector<Body> bodies;
  /// Values of enclosing graphs that its bodies read, sorted.
  std::vector<std::string> captures;
};

/// A graph inside a node (a branch or a loop body). Its values are renamed to be unique in the
/// model.
struct Body {
  /// Its attribute. Example: "then_branch".
  std::string attribute;
  std::vector<std::string> inputs, outputs;
  std::vector<GraphNode> nodes;
};

/// A model with checked names: every value is defined once, every input is defined, and the graph
/// has no cycle.
struct Model {
  ScannedModel scanned;
  std::unique_ptr<onnx::ModelProto> proto;
  /// The version of the standard operator set.
  int64_t opset = 0;
  std::vector<GraphNode> nodes;
  std::map<std::string, const onnx::TensorProto *> initializers;
  /// The initializers in the order of the file, those of bodies last.
  std::vector<const onnx::TensorProto *> initializerOrder;
  std::set<std::string> bodyInitializers;
  /// Maps split initializers to their origin; see Merged.h.
  std::map<std::string, std::string> splitFrom;
  /// Rewritten nodes and tensors.
  std::deque<onnx::NodeProto> ownNodes;
  std::deque<onnx::TensorProto> ownTensors;
  /// Graph inputs that are not initializers.
  std::vector<const onnx::ValueInfoProto *> inputs;

  const std::string &path() const { return scanned.file.path(); }
  const onnx::GraphProto &graph() const { return proto->graph(); }
};

/// Maps, scans, parses and checks the file at `path`.
Result<std::unique_ptr<Model>> loadModel(const std::string &path);

/// ImportError if the importer does not support this version of the standard operator set.
void checkOpset(int64_t version, const std::string &what);

/// Returns the op of PyTorch that torch's newer exporter has written as `node`; "" if unknown.
/// Example: "aten.squeeze.dim".
std::string torchOpOf(const onnx::NodeProto &node);

/// "node 'NAME' (TYPE)"; of a loop or a branch "node 'NAME' (TYPE of aten.embedding_bag)".
std::string describe(const GraphNode &node);

/// Calls `visit` with every node; nodes of bodies come after their owner.
void forEachNode(const std::vector<GraphNode> &nodes,
                 const std::function<void(const GraphNode &)> &visit);

/// Sorts nodes topologically, in their own order if possible. `defined`: values from outside.
/// ImportError for a value defined twice, for a cycle, and, unless `isBody`, for an undefined
/// value.
void sortNodes(std::vector<GraphNode> &nodes, const std::vector<std::string> &defined, bool isBody);

/// The dtype of an ONNX element type; ImportError with `what` for an unsupported one.
DType dtypeOfOnnx(int32_t elementType, const std::string &what);

/// The sizes of a tensor; ImportError for negative sizes or more than 2^56 elements.
Shape shapeOfTensor(const onnx::TensorProto &tensor);

/// Returns the elements of a tensor in the model file. ImportError if they are elsewhere, or do not
/// match its shape.
Known readTensor(const Model &model, const onnx::TensorProto &tensor);

/// Whether the tensor's data is in a file of its own.
bool isExternal(const onnx::TensorProto &tensor);

/// Whether an exporter generated the name ("val_152", "onnx::MatMul_2532").
bool isGeneratedName(const std::string &name);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MODEL_H
