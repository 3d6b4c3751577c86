//===- GradientNorm.cpp - The norm of all gradients of a step -------------===//

#include "runtime/train/GradientNorm.h"

namespace tbc::train {

Status GradientNorm::executed(const runtime::Executed &executed) {
  if (op.empty() || executed.action.kind != schedule::Action::Kind::Update)
    return Status::ok();
  for (int i = executed.first; i < executed.end; ++i) {
    const program::Instruction &instruction = executed.instruction(i);
    if (instruction.id != op)
      continue;
    kernels::Tensor norm = executed.value(instruction.results[0]);
    if (norm && !norm.holdsResidues())
      last = norm.toDoubles()[0];
  }
  return Status::ok();
}

} // namespace tbc::train
