//===- Parameters.h - Which initializers are parameters --------------------===//

#ifndef TBC_FRONTEND_ONNX_PARAMETERS_H
#define TBC_FRONTEND_ONNX_PARAMETERS_H

#include "frontend/onnx/ImportedModel.h"
#include "frontend/onnx/Model.h"

namespace tbc::frontend {

/// The initializer `name` is the parameter `source`, or its transpose.
struct Tie {
  std::string name, source;
  bool isTransposed = false;
};

/// The parameters and the state of a model, each in the order of the file (see Roles.h); every
/// other initializer is a constant.
///
/// State is stored beside the parameters without training: running statistics of batch norm, tables
/// of rotary angles, and constants that are too large for the function or have no data. Checks
/// every reference to external data. ImportError for tensors whose data does not fit their shape.
struct Parameters {
  std::vector<ParameterSource> params, states;
  /// Initializers that are tied to another parameter.
  std::vector<Tie> ties;
  /// Constants in files of their own, and masks, by name.
  std::map<std::string, ParameterSource> constantSources;
  std::set<std::string> masks;
  /// All constants: in the function and among `states`.
  std::vector<ConstantTensor> constants;
  /// By weak evidence: parameters; tensors that are constants, because only sines and cosines read
  /// them.
  std::set<std::string> open, openAngles;
  std::vector<std::string> warnings, notes;
};
Parameters findParameters(const Model &model, const ImportOptions &options);

/// Names the tensors with weak evidence, and the options that settle it.
std::vector<std::string> openRoleWarnings(const Parameters &parameters);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_PARAMETERS_H
