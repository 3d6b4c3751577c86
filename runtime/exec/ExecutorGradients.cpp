//===- ExecutorGradients.cpp - Bf16 and compressed sums of gradients --------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/GradientReductions.h"

namespace tbc::runtime {

using program::Block;
using program::Instruction;

/// Returns the types with bf16 in place of f32.
static std::vector<kernels::TensorType> narrowed(std::vector<kernels::TensorType> types) {
  for (kernels::TensorType &type : types)
    type.dtype = kernels::DType::BF16;
  return types;
}

/// Returns an error unless floats are computed as such, in the memory of this process.
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
  if (std::string why = whyNotCompressed(*program); !why.empty())
    return Error{ErrorCode::Usage, why};
  if (arith != kernels::Arith::Native)
    return checkOwnPrecision("gradients are compressed");
  for (auto &[id, ready] : prepared) {
    const Block &block = stageCode->block(id);
    std::vector<bool> isSum = gradientReductions(*program, stageIndex, id);
    for (size_t i = 0; i < isSum.size(); ++i) {
      if (!isSum[i])
        continue;
      const Instruction &instruction = block.instructions[i];
      Prepared &one = ready.instructions[i];
      auto sparse = std::make_unique<SparseLayout>(instruction, one.group, one.layout,
                                                   typesOf(instruction.operands), share);
      if (!sparse->isSparse())
        continue;
      Result<bool> isDone = machine->compress(id, int(i), *sparse);
      Status status = !isDone   ? Status(isDone.error())
                      : *isDone ? Status::ok()
                                : checkOwnPrecision("gradients are compressed");
      if (!status)
        return status;
      if (!*isDone)
        one.sparseSum = std::make_unique<SparseSum>(instruction, *sparse);
      one.sparse = std::move(sparse);
    }
  }
  return Status::ok();
}

std::map<std::string, size_t> Executor::gradientResiduals() const {
  std::map<std::string, size_t> counts;
  for (const auto &[id, ready] : prepared)
    for (size_t i = 0; i < ready.instructions.size(); ++i)
      if (const SparseLayout *sparse = ready.instructions[i].sparse.get())
        counts[describe(*program, stageIndex, id, int(i))] = size_t(sparse->residualCount);
  return counts;
}

/// Returns the compressed sum at this place and sets its block and index; null if there is no such
/// sum.
const Executor::Prepared *Executor::findSparse(const std::string &place, program::BlockId &block,
                                               int &index) const {
  for (const auto &[id, ready] : prepared)
    for (size_t i = 0; i < ready.instructions.size(); ++i)
      if (ready.instructions[i].sparse && describe(*program, stageIndex, id, int(i)) == place) {
        block = id, index = int(i);
        return &ready.instructions[i];
      }
  return nullptr;
}

std::vector<float> Executor::gradientResidual(const std::string &place) const {
  program::BlockId block(Kind::Forward);
  int index = 0;
  const Prepared *sum = findSparse(place, block, index);
  kernels::require(sum != nullptr, [&] { return "no compressed sum at " + place; });
  return sum->sparseSum ? sum->sparseSum->residuals() : machine->residuals(block, index);
}

void Executor::setGradientResidual(const std::string &place, std::vector<float> residual) {
  program::BlockId block(Kind::Forward);
  int index = 0;
  const Prepared *sum = findSparse(place, block, index);
  kernels::require(sum != nullptr, [&] { return "no compressed sum at " + place; });
  kernels::require(residual.size() == size_t(sum->sparse->residualCount),
                   "residuals of another sum");
  if (sum->sparseSum)
    sum->sparseSum->setResiduals(std::move(residual));
  else
    machine->setResiduals(block, index, residual);
}

} // namespace tbc::runtime
