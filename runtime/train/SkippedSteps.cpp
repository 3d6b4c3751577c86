//===- SkippedSteps.cpp - Steps whose update is left out -------------------===//

#include "runtime/train/SkippedSteps.h"
#include "runtime/exec/GradientReductions.h"

namespace tbc::train {

using program::Instruction;

static bool isOp(const Instruction &instruction, const char *op) {
  return instruction.kind == program::InstructionKind::Kernel && instruction.op == op;
}

SkippedSteps::SkippedSteps(const program::Program &program)
    : isScaled(runtime::skipsOverflow(program)) {
  for (const program::Stage &stage : program.stages)
    for (const Instruction &instruction : stage.update.instructions)
      isDynamic |= isOp(instruction, "update_loss_scale");
}

bool SkippedSteps::looksAt(schedule::Action::Kind kind, const Instruction &instruction) const {
  return isScaled && kind == schedule::Action::Kind::Update &&
         isOp(instruction, "count_not_finite");
}

Status SkippedSteps::executed(const runtime::Executed &executed) {
  for (int i = executed.first; i < executed.end; ++i) {
    const Instruction &instruction = executed.instruction(i);
    if (!looksAt(executed.action.kind, instruction))
      continue;
    const kernels::Tensor count = executed.value(instruction.results[0]);
    if (count && !count.holdsResidues())
      isOverflowing |= count.toDoubles()[0] != 0;
  }
  return Status::ok();
}

Status SkippedSteps::check(bool isSkipped, bool isFinite, const std::function<std::string()> &cause,
                           int64_t lastSaved) {
  constexpr int64_t mostInARow = 10, mostThatLowerTheScale = 100;
  numInARow = isSkipped ? numInARow + 1 : 0;
  const bool isStuck = numInARow >= (isDynamic && isFinite ? mostThatLowerTheScale : mostInARow);
  if (!isStuck && (isFinite || isSkipped))
    return Status::ok();
  std::string why = isStuck
                        ? std::to_string(numInARow) +
                              " steps in a row were skipped, because the loss or a gradient was "
                              "NaN or infinite"
                        : "the loss is NaN or infinite";
  if (const std::string first = cause(); !first.empty())
    return Error{ErrorCode::NotFinite, why + "; " + first};
  if (lastSaved > 0)
    why += "; --resume goes on from the checkpoint of step " + std::to_string(lastSaved);
  return Error{ErrorCode::NotFinite,
               why +
                   ". --detect-anomaly names the op that begins it; a lower --lr, "
                   "or gradients clipped by tbc plan --clip-norm, may prevent it" +
                   (isStuck && isScaled ? ", and so may a lower --loss-scale of tbc plan" : "") +
                   (isStuck || isScaled ? "" : "; --on-nan skip leaves such steps out")};
}

} // namespace tbc::train
