//===- Sources.h - Where the data of initializers lies ---------------------===//

#ifndef TBC_FRONTEND_ONNX_SOURCES_H
#define TBC_FRONTEND_ONNX_SOURCES_H

#include "frontend/onnx/ExternalData.h"
#include "frontend/onnx/Import.h"
#include "frontend/onnx/Model.h"

#include <functional>

namespace tbc::frontend {

/// Finds the data of a model's initializers and checks every reference to external data. Each
/// external file is opened once, and what was opened is what everybody reads from then on.
class Sources {
public:
  Sources(const Model &model, const ImportOptions &options);

  /// The data of `tensor`. ImportError if it is malformed, or not what the shape asks for.
  ParameterSource locate(const onnx::TensorProto &tensor);
  /// The same, without data where a tensor inside of the model holds its elements in another way.
  ParameterSource locateIfPacked(const onnx::TensorProto &tensor);

  /// ImportError if two tensors share external bytes.
  void finish();

private:
  ParameterSource describe(const onnx::TensorProto &tensor) const;
  ParameterSource external(const onnx::TensorProto &tensor);
  /// Nothing where all is well, else what is wrong.
  std::string findInside(const onnx::TensorProto &tensor, ParameterSource &source) const;

  const Model &model;
  std::string folder, root;
  ExternalLedger ledger;
  std::map<const onnx::TensorProto *, ParameterSource> located;
};

/// The bytes of `source` in the file that the import opened; nullptr if they are not there.
const uint8_t *bytesOf(const ParameterSource &source);

/// The elements of `source`, whose data is there. ImportError if there are too many for a constant.
Known readSource(const ParameterSource &source);

/// Calls `visit` with each element, in row-major order, until it says false. Says whether the data
/// is there and `visit` never said so.
bool forEachElement(const ParameterSource &source, const std::function<bool(double)> &visit);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SOURCES_H
