//===- TrainedParameters.cpp - Which parameters have a gradient ------------===//

#include "frontend/onnx/TrainedParameters.h"
#include "frontend/onnx/Roles.h"
#include "ir/Gradient.h"
#include "ir/Roles.h"
#include "ir/Tbc.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc::frontend {

std::set<std::string> withoutGradient(func::FuncOp function) {
  Block &body = function.getBody().front();
  llvm::DenseSet<mlir::Value> reached;
  auto isFloat = [](mlir::Value value) {
    return isa<FloatType>(llvm::cast<RankedTensorType>(value.getType()).getElementType());
  };
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (!function.getResultAttr(unsigned(i), kRoleAttr) && isFloat(value))
      reached.insert(value);
  for (Operation &op : llvm::reverse(body.without_terminator()))
    if (!isa<DetachOp>(op) &&
        llvm::any_of(op.getResults(), [&](mlir::Value value) { return reached.contains(value); }))
      for (mlir::Value operand : op.getOperands())
        if (isFloat(operand))
          reached.insert(operand);
  std::set<std::string> names;
  for (BlockArgument argument : body.getArguments()) {
    if (argumentRole(function, argument.getArgNumber()) == TensorRole::Parameter &&
        !argument.use_empty() && !reached.contains(argument))
      names.insert(function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kNameAttr).str());
  }
  return names;
}

void holdParameters(Parameters &parameters, const std::set<std::string> &names) {
  std::vector<ParameterSource> trained;
  for (ParameterSource &source : parameters.params) {
    if (!names.count(source.name)) {
      trained.push_back(std::move(source));
      continue;
    }
    source.isState = true;
    parameters.constants.push_back({source.name, source.displayName, source.dtype, source.shape,
                                    describe(Evidence::NoGradient)});
    parameters.states.push_back(std::move(source));
  }
  parameters.params = std::move(trained);
}

void dropUnusedParameters(func::FuncOp function, ImportedModel &imported, size_t firstParameter) {
  Block &body = function.getBody().front();
  llvm::BitVector unused(body.getNumArguments());
  std::vector<ParameterSource> kept;
  for (size_t i = 0; i < imported.parameters.size(); ++i) {
    if (!body.getArgument(firstParameter + i).use_empty()) {
      kept.push_back(imported.parameters[i]);
      continue;
    }
    unused.set(firstParameter + i);
    imported.warnings.push_back("parameter '" + imported.parameters[i].name +
                                "' does not influence the outputs");
  }
  if (unused.any())
    function.eraseArguments(unused);
  imported.parameters = std::move(kept);
}

} // namespace tbc::frontend
