//===- ExecutorGradients.cpp - How sums of gradients travel -----------------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/GradientReductions.h"

namespace tbc::runtime {

using program::Block;
using program::Instruction;

/// Types of f32 as bf16.
static std::vector<kernels::TensorType> narrowed(std::vector<kernels::TensorType> types) {
  for (kernels::TensorType &type : types)
    type.dtype = kernels::DType::BF16;
  return types;
}

/// Whether floats are computed as such, in the memory of this process.
Status Executor::checkOwnPrecision(const std::string &what) const {
  if (arith == kernels::Arith::Native && contents->hasBytes())
    return Status::ok();
  return Error{ErrorCode::Usage, what + " only where floats are computed in their own precision, "
                                        "in the memory of CPUs"};
}

Status Executor::sumGradientsInBF16() {
  if (Status status = checkOwnPrecision("sums of gradients travel as bf16"); !status)
    return status;
  for (auto &[id, ready] : prepared) {
    const Block &block = stageCode->block(id);
    std::vector<bool> isSum = gradientReductions(*program, stageIndex, id);
    for (size_t i = 0; i < isSum.size(); ++i) {
      if (!isSum[i])
        continue;
      const Instruction &instruction = block.instructions[i];
      Prepared &one = ready.instructions[i];
      one.isNarrow = true;
      one.layout = memoryLayout(instruction, one.group, narrowed(typesOf(instruction.operands)),
                                narrowed(typesOf(instruction.results)));
    }
  }
  return Status::ok();
}

Status Executor::compressGradients(double share) {
  if (Status status = checkOwnPrecision("gradients are compressed"); !status)
    return status;
  if (std::string why = whyNotCompressed(*program); !why.empty())
    return Error{ErrorCode::Usage, why};
  for (auto &[id, ready] : prepared) {
    const Block &block = stageCode->block(id);
    std::vector<bool> isSum = gradientReductions(*program, stageIndex, id);
    for (size_t i = 0; i < isSum.size(); ++i) {
      if (!isSum[i])
        continue;
      const Instruction &instruction = block.instructions[i];
      Prepared &one = ready.instructions[i];
      auto sparse = std::make_unique<SparseSum>(instruction, one.group, one.layout,
                                                typesOf(instruction.operands), share);
      if (sparse->isSparse())
        one.sparse = std::move(sparse);
    }
  }
  return Status::ok();
}

std::map<std::string, const std::vector<float> *> Executor::gradientResiduals() const {
  std::map<std::string, const std::vector<float> *> residuals;
  for (const auto &[id, ready] : prepared)
    for (size_t i = 0; i < ready.instructions.size(); ++i)
      if (const SparseSum *sparse = ready.instructions[i].sparse.get())
        residuals[describe(*program, stageIndex, id, int(i))] = &sparse->residuals();
  return residuals;
}

void Executor::setGradientResidual(const std::string &place, std::vector<float> residual) {
  for (auto &[id, ready] : prepared)
    for (size_t i = 0; i < ready.instructions.size(); ++i)
      if (SparseSum *sparse = ready.instructions[i].sparse.get())
        if (describe(*program, stageIndex, id, int(i)) == place)
          sparse->setResiduals(std::move(residual));
}

} // namespace tbc::runtime
