//===- StartValues.cpp - Tensors that begin with NaN or infinity -----------===//

#include "runtime/train/StartValues.h"

#include "runtime/kernels/Finite.h"

#include <algorithm>
#include <cmath>

namespace tbc::train {

using program::Role;

void StartValues::look(const program::Program &program, const program::GlobalTensor &tensor,
                       const kernels::Tensor &piece) {
  if (kernels::isFinite(piece))
    return;
  const Role role = tensor.role;
  bool isFault = role == Role::Parameter || role == Role::OptimizerState;
  if (role == Role::State) {
    const std::vector<double> elements = piece.toDoubles();
    isFault = std::any_of(elements.begin(), elements.end(), [](double x) { return std::isnan(x); });
  }
  for (size_t number = 0; isFault && number < program.tensors.size(); ++number)
    if (program.tensors[number].name == tensor.name)
      found = int64_t(number);
}

/// Returns whether a constant is NaN or plus infinity somewhere. Minus infinity hides scores.
static bool isFault(const program::Instruction &instruction) {
  if (instruction.op != "constant")
    return false;
  const kernels::AttrValue *value = instruction.attrs.find("value");
  const auto *elements = value ? std::get_if<std::vector<double>>(value) : nullptr;
  return elements && std::any_of(elements->begin(), elements->end(), [](double x) {
           return std::isnan(x) || (std::isinf(x) && x > 0);
         });
}

std::string startOfNan(const program::Program &program, int64_t tensor) {
  if (tensor >= 0) {
    const program::GlobalTensor &global = program.tensors[size_t(tensor)];
    return "initializer '" + (global.initializer.empty() ? global.name : global.initializer) +
           "' was not finite before the first step: export the model again with finite weights, or "
           "draw them by --init-weights 1";
  }
  for (const program::Stage &stage : program.stages)
    for (const program::BlockId &id : stage.blocks())
      for (const program::Instruction &instruction : stage.block(id).instructions)
        if (isFault(instruction))
          return "the constant that node '" + instruction.id +
                 "' reads or makes is not finite: export the model again without it";
  return "";
}

} // namespace tbc::train
