//===- Model.h - A parsed and checked ONNX model ---------------------------===//

#ifndef TBC_FRONTEND_ONNX_MODEL_H
#define TBC_FRONTEND_ONNX_MODEL_H

#include "frontend/onnx/Known.h"
#include "frontend/onnx/Scan.h"

#include "onnx/onnx.pb.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tbc::frontend {

/// A node in execution order.
struct GraphNode {
  const onnx::NodeProto *proto = nullptr;
  /// The node's name, made unique; its op type and number where it has none.
  std::string name;
};

/// A model that passed the checks on names: every value is defined once, every input is defined
/// somewhere, and no node waits for its own result.
struct Model {
  ScannedModel scanned;
  std::unique_ptr<onnx::ModelProto> proto;
  /// The version of the standard operator set.
  int64_t opset = 0;
  std::vector<GraphNode> nodes;
  std::map<std::string, const onnx::TensorProto *> initializers;
  /// Graph inputs that are not initializers.
  std::vector<const onnx::ValueInfoProto *> inputs;

  const std::string &path() const { return scanned.file.path(); }
  const onnx::GraphProto &graph() const { return proto->graph(); }
};

/// Maps, scans, parses and checks the file at `path`.
Result<std::unique_ptr<Model>> loadModel(const std::string &path);

/// The dtype of an ONNX element type; ImportError naming `what` for those that tbc has not.
DType dtypeOfOnnx(int32_t elementType, const std::string &what);

/// The sizes of a tensor; ImportError for negative sizes or more than 2^56 elements.
Shape shapeOfTensor(const onnx::TensorProto &tensor);

/// The elements of a tensor that lies in the model file. ImportError if they are elsewhere, or not
/// as many as its shape says.
Known readTensor(const Model &model, const onnx::TensorProto &tensor);

/// Whether the tensor's data is in a file of its own.
bool isExternal(const onnx::TensorProto &tensor);

/// Whether an exporter made the name up ("val_152", "onnx::MatMul_2532").
bool isGeneratedName(const std::string &name);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_MODEL_H
