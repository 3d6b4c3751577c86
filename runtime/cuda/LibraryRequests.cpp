//===- LibraryRequests.cpp - Requests to NVIDIA's libraries ----------------===//

#include "runtime/cuda/LibraryRequests.h"
#include "runtime/abi/Positions.h"
#include "runtime/abi/Region.h"
#include "runtime/mesh/Axes.h"

#include <algorithm>

namespace tbc::cuda {

using program::BlockId;
using program::Instruction;
using program::Region;
using program::ValueId;

//===----------------------------------------------------------------------===//
// Attention and convolution
//===----------------------------------------------------------------------===//

/// Returns whether all ranks see different samples, so that no two need the same bits.
static bool mayVary(const program::Mesh &mesh) {
  return std::all_of(mesh.axes.begin(), mesh.axes.end(), [](const program::MeshAxis &axis) {
    const std::optional<mesh::Axis> known = mesh::parseAxis(axis.name);
    return axis.size <= 1 || (known && !mesh::row(*known).needsEqualBits);
  });
}

CudnnRequest cudnnRequestOf(const program::Program &program, int stage, BlockId id,
                            const Region &region, size_t version, int capability) {
  const program::Stage &code = program.stages[size_t(stage)];
  const program::Block &block = code.block(id);
  const Instruction &instruction = block.instructions[size_t(region.first)];
  CudnnRequest request;
  request.op = instruction.op;
  request.attrs = instruction.attrs;
  for (ValueId value : instruction.operands)
    request.operands.push_back(code.values[size_t(value)]);
  std::vector<ValueId> read = program::regionValues(block, region).results;
  for (ValueId value : instruction.results) {
    request.results.push_back(code.values[size_t(value)]);
    request.isRead.push_back(std::find(read.begin(), read.end(), value) != read.end());
  }
  request.placesAreIndices = program::positionsAreIndices(block, instruction);
  request.mayVary = mayVary(program.mesh);
  request.version = version;
  request.capability = capability;
  return request;
}

std::set<ValueId> valuesRead(const CudnnWork &work, const Instruction &instruction) {
  std::set<ValueId> values;
  for (const CudnnWork::Step &step : work.steps)
    for (const auto &[tensor, place] : step.places)
      if (place.of == CudnnWork::Place::Of::Operand)
        values.insert(instruction.operands[size_t(place.number)]);
  return values;
}

std::set<int> unreadRegions(const program::Block &block,
                            const std::map<int, std::set<ValueId>> &reads) {
  std::set<int> begins, unread;
  for (const Region &region : block.regions)
    begins.insert(region.first);
  std::set<ValueId> read, ignored; // ignored: operands of a call that does not read them
  for (const program::BlockResult &result : block.results)
    read.insert(result.value);
  const std::vector<std::pair<int, int>> spans = program::regionSpans(block);
  for (int last = int(spans.size()) - 1, first = 0; last >= 0; last = first - 1) {
    first = spans[size_t(last)].first;
    bool isRead = begins.count(first) == 0, isIgnored = false;
    for (int i = first; i <= last; ++i)
      for (ValueId value : block.instructions[size_t(i)].results) {
        isRead |= read.count(value) > 0;
        isIgnored |= ignored.count(value) > 0;
      }
    const bool isUnread = isIgnored && !isRead;
    if (isUnread)
      unread.insert(first);
    auto call = reads.find(first);
    for (int i = first; i <= last; ++i)
      for (ValueId value : block.instructions[size_t(i)].operands)
        if (isUnread || (call != reads.end() && call->second.count(value) == 0))
          ignored.insert(value);
        else
          read.insert(value);
  }
  return unread;
}

//===----------------------------------------------------------------------===//
// Matmuls
//===----------------------------------------------------------------------===//

Result<EinsumMatmul> einsumMatmulOf(const program::Stage &stage, const Instruction &einsum,
                                    const kernels::TensorType &result) {
  return matmulOf(einsum.attrs, stage.values[size_t(einsum.operands[0])],
                  stage.values[size_t(einsum.operands[1])], result);
}

/// Returns cuBLASLt's name of the epilogue.
static CublasEpilogue kindOf(const Epilogue &e) {
  switch (e.function) {
  case Epilogue::Function::Identity:
  case Epilogue::Function::Cast:
    return e.bias ? CublasEpilogue::Bias : CublasEpilogue::Default;
  case Epilogue::Function::Gelu:
    if (e.geluInput)
      return e.bias ? CublasEpilogue::GeluAuxiliaryBias : CublasEpilogue::GeluAuxiliary;
    return e.bias ? CublasEpilogue::GeluBias : CublasEpilogue::Gelu;
  case Epilogue::Function::GeluGradient:
    return CublasEpilogue::GeluGradient;
  }
  return CublasEpilogue::Default;
}

Result<EinsumMatmul> epilogueMatmulOf(const program::Stage &stage, const Instruction &einsum,
                                      const Epilogue &e) {
  kernels::TensorType type = stage.values[size_t(einsum.results[0])];
  type.dtype = stage.values[size_t(e.result)].dtype;
  auto found = einsumMatmulOf(stage, einsum, type);
  if (!found)
    return Error{ErrorCode::Usage, ""};
  MatmulShape &shape = found->shape;
  shape.epilogue = kindOf(e);
  shape.adds = e.added.has_value();
  bool isDense = shape.batch == 1 && shape.strideC == shape.n &&
                 shape.m * shape.n == kernels::numElements(type.shape);
  if (!isDense && e.function != Epilogue::Function::Cast)
    return Error{ErrorCode::Usage, "a matmul that is a batch"};
  if (e.bias && kernels::numElements(stage.values[size_t(*e.bias)].shape) != shape.n)
    return Error{ErrorCode::Usage, "a bias that is not along its rows"};
  constexpr int64_t auxiliaryStep = 8; // for CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
  if (e.geluInput && shape.n % auxiliaryStep != 0)
    return Error{ErrorCode::Usage, "rows that are no multiple of 8"};
  return found;
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

const char *name(Library library) { return library == Library::CublasLt ? "cuBLASLt" : "cuDNN"; }

LibraryUse libraryUseOf(const program::Program &program, int stage, BlockId id, int capability) {
  constexpr size_t version = 91900; // the newest cuDNN whose engines were queried: 9.19
  const program::Stage &code = program.stages[size_t(stage)];
  const program::Block &block = code.block(id);
  LibraryUse use;
  for (const Epilogue &epilogue : findEpilogues(code, block).list) {
    if (!epilogueMatmulOf(code, block.instructions[size_t(epilogue.einsum)], epilogue))
      continue;
    use.leftOut.insert(epilogue.leftOut.begin(), epilogue.leftOut.end());
    use.regions[epilogue.region.first] = Library::CublasLt;
  }
  std::map<int, std::set<ValueId>> reads; // of cuDNN
  for (const Region &region : block.regions) {
    const Instruction &instruction = block.instructions[size_t(region.first)];
    if (region.count != 1 || use.leftOut.count(region.first))
      continue;
    if (instruction.op == "einsum" &&
        einsumMatmulOf(code, instruction, code.values[size_t(instruction.results[0])]))
      use.regions[region.first] = Library::CublasLt;
    if (!isCudnnOp(instruction.op))
      continue;
    if (Result<CudnnWork> work =
            cudnnWorkOf(cudnnRequestOf(program, stage, id, region, version, capability))) {
      use.regions[region.first] = Library::Cudnn;
      reads[region.first] = valuesRead(*work, instruction);
    }
  }
  use.unread = unreadRegions(block, reads);
  return use;
}

} // namespace tbc::cuda
