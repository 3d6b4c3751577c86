//===- Sources.h - Locate the data of initializers -------------------------===//

#ifndef TBC_FRONTEND_ONNX_SOURCES_H
#define TBC_FRONTEND_ONNX_SOURCES_H

#include "frontend/onnx/ExternalData.h"
#include "frontend/onnx/ImportedModel.h"
#include "frontend/onnx/Model.h"

#include <functional>

namespace tbc::frontend {

/// Locates the data of a model's initializers and checks every reference to external data. Each
/// external file is opened once, and all later reads use the opened file.
class Sources {
public:
  Sources(const Model &model, const ImportOptions &options);

  /// Returns the location of the tensor's data. ImportError if it is malformed, or does not match
  /// the shape.
  ParameterSource locate(const onnx::TensorProto &tensor);
  /// The same, but without a location if the model file holds the elements in another encoding.
  ParameterSource locateIfPacked(const onnx::TensorProto &tensor);

  /// ImportError if two tensors share external bytes.
  void finish();

private:
  ParameterSource describe(const onnx::TensorProto &tensor) const;
  ParameterSource external(const onnx::TensorProto &tensor);
  /// Sets the location of data inside the model file. Returns an error text, empty on success.
  std::string findInside(const onnx::TensorProto &tensor, ParameterSource &source) const;

  const Model &model;
  std::string folder, root;
  ExternalLedger ledger;
  std::map<const onnx::TensorProto *, ParameterSource> located;
};

/// Returns the bytes of `source` in the opened file; nullptr if they are missing.
const uint8_t *bytesOf(const ParameterSource &source);

/// Returns the elements of `source`; its data must be present. ImportError if there are too many
/// for a constant.
Known readSource(const ParameterSource &source);

/// Calls `visit` with each element, in row-major order, until it returns false. Returns whether the
/// data is present and `visit` always returned true.
bool forEachElement(const ParameterSource &source, const std::function<bool(double)> &visit);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SOURCES_H
