//===- Anomaly.cpp - The origin of the first NaN --------------------------===//

#include "runtime/train/Anomaly.h"
#include "runtime/kernels/Kernel.h"

#include <algorithm>
#include <cmath>

namespace tbc::train {

using kernels::Tensor;
using program::Instruction;
using program::ValueId;

static int64_t instanceOf(const runtime::Executed &executed, int slot) {
  bool isMany = program::livesAMicroBatch(executed.stage.slots[slot].role);
  return isMany ? executed.action.microBatch : 0;
}

bool AnomalyDetector::hasInfiniteOperand(const runtime::Executed &executed, int index) const {
  const program::Block &block = executed.stage.block(executed.action);
  for (ValueId operand : executed.instruction(index).operands) {
    if (infiniteValues.count(operand))
      return true;
    for (const program::Argument &argument : block.arguments)
      if (argument.value == operand &&
          infiniteSlots.count({argument.slot, instanceOf(executed, argument.slot)}))
        return true;
  }
  return false;
}

void AnomalyDetector::remember(const runtime::Executed &executed, ValueId value, bool isInfinite) {
  if (isInfinite)
    infiniteValues.insert(value);
  else
    infiniteValues.erase(value);
  for (const program::BlockResult &result : executed.stage.block(executed.action).results) {
    if (result.value != value)
      continue;
    std::pair<int, int64_t> place{result.slot, instanceOf(executed, result.slot)};
    if (isInfinite)
      infiniteSlots.insert(place);
    else if (!result.accumulate)
      infiniteSlots.erase(place);
  }
}

Status AnomalyDetector::executed(const runtime::Executed &executed) {
  auto failed = [&](const std::string &what, const Instruction &instruction, const Tensor &tensor,
                    size_t element) {
    std::string text = "it makes " + what + " at element " + std::to_string(element) + " of " +
                       toString(tensor.type());
    if (executed.end - executed.first > 1)
      text += ", by " + instruction.id + ", the last of a region of " +
              std::to_string(executed.end - executed.first) +
              " ops; --kernels reference says by which of them";
    return Error{ErrorCode::RankFailed, text};
  };
  for (int i = executed.first; i < executed.end; ++i) {
    const Instruction &instruction = executed.instruction(i);
    bool isArithmetic =
        instruction.kind == program::InstructionKind::Kernel && !instruction.operands.empty() &&
        (kernels::isElementwiseKernel(instruction.op) || instruction.op == "einsum");
    for (ValueId value : instruction.results) {
      if (!kernels::isFloat(executed.stage.values[value].dtype))
        continue;
      Tensor tensor = executed.value(value);
      if (!tensor || tensor.holdsResidues())
        continue;
      std::vector<double> numbers = tensor.toDoubles();
      auto nan = std::find_if(numbers.begin(), numbers.end(), [](double x) { return x != x; });
      if (nan != numbers.end())
        return failed("NaN", instruction, tensor, size_t(nan - numbers.begin()));
      auto infinite =
          std::find_if(numbers.begin(), numbers.end(), [](double x) { return std::isinf(x); });
      bool isInfinite = infinite != numbers.end();
      if (isInfinite && isArithmetic && !hasInfiniteOperand(executed, i))
        return failed(*infinite > 0 ? "infinity" : "-infinity", instruction, tensor,
                      size_t(infinite - numbers.begin()));
      remember(executed, value, isInfinite);
    }
  }
  return Status::ok();
}

} // namespace tbc::train
