//===- Parameters.h - Which initializers are parameters --------------------===//

#ifndef TBC_FRONTEND_ONNX_PARAMETERS_H
#define TBC_FRONTEND_ONNX_PARAMETERS_H

#include "frontend/onnx/Import.h"
#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// The initializer `name` is the parameter `source`, or its transpose.
struct Tie {
  std::string name, source;
  bool isTransposed = false;
};

/// The parameters and the state of a model, each in the order of the file; every other initializer
/// is a constant (docs/design.md, section 7).
///
/// Running statistics of batch norm are state; so are tables of rotary angles, and large float
/// tables that are no parameters and whose data is in another file. Checks every reference to
/// external data. ImportError for tensors whose data does not fit their shape.
struct Parameters {
  std::vector<ParameterSource> params, states;
  /// Initializers that are another parameter.
  std::vector<Tie> ties;
  std::vector<std::string> warnings;
};
Parameters findParameters(const Model &model, const ImportOptions &options);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_PARAMETERS_H
