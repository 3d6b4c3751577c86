//===- TrainedParameters.h - Which parameters have a gradient --------------===//

#ifndef TBC_FRONTEND_ONNX_TRAINEDPARAMETERS_H
#define TBC_FRONTEND_ONNX_TRAINEDPARAMETERS_H

#include "frontend/onnx/Parameters.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <set>
#include <string>

namespace tbc::frontend {

/// Returns the names of parameters without a gradient: they have no path of floats to an output.
/// Example: a bias that only selects experts.
std::set<std::string> withoutGradient(mlir::func::FuncOp function);

/// Turns the parameters `names` into state.
void holdParameters(Parameters &parameters, const std::set<std::string> &names);

/// Removes parameters without uses from `imported`, and their arguments from `function`. Adds a
/// warning for each. `firstParameter`: the argument of the first parameter.
void dropUnusedParameters(mlir::func::FuncOp function, ImportedModel &imported,
                          size_t firstParameter);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_TRAINEDPARAMETERS_H
