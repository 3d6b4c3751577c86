//===- ExecutorLoading.cpp - Tensors that come from outside ----------------===//
//
// Initial values and inputs: each rank makes its own pieces, large ones part by part on several
// threads.
//
//===----------------------------------------------------------------------===//

#include "runtime/exec/Executor.h"
#include "runtime/exec/Failed.h"
#include "runtime/exec/Packing.h"

#include <algorithm>
#include <limits>

namespace tbc::runtime {

using kernels::Tensor;
using program::Role;
using program::Slot;
using schedule::Action;

Status Executor::load(const TensorProvider &provider) {
  auto pieceOf = [&](const program::GlobalTensor &tensor, const std::vector<int64_t> &indices,
                     const kernels::TensorType &local) -> Result<Tensor> {
    return pick(convert(provider(tensor.initializer), tensor.type, arith), indices, local);
  };
  // Whole pieces, because each call converts the whole tensor.
  return loadParts(pieceOf, 1, std::numeric_limits<int64_t>::max());
}

Status Executor::loadPieces(const PieceProvider &provider, int numThreads) {
  return loadParts(provider, numThreads, Parts().elementsPerPart);
}

/// Loads pieces with more elements part by part, if their memory can take parts.
Status Executor::loadParts(const PieceProvider &provider, int numThreads, int64_t elementsPerPart) {
  Parts parts{numThreads, elementsPerPart, {}};
  for (size_t number = 0; number < stageCode->slots.size(); ++number) {
    const Slot &slot = stageCode->slots[number];
    if (slot.role != Role::Parameter && slot.role != Role::State &&
        slot.role != Role::OptimizerState)
      continue;
    const program::GlobalTensor &tensor = program->tensors[slot.tensor];
    if (tensor.initializer.empty()) {
      if (tensor.fill == 0)
        contents->setZero(int(number));
      else
        contents->setSlot(int(number), 0, Tensor::fromDoubles(slot.type, arith, {tensor.fill}));
      continue;
    }
    std::string what =
        "loading \"" + tensor.name + "\" from initializer \"" + tensor.initializer + "\"";
    auto make = [&provider, &tensor](const std::vector<int64_t> &indices,
                                     const kernels::TensorType &type) {
      return provider(tensor, indices, type);
    };
    if (Status status = addParts(parts, int(number), 0, what, make); !status)
      return status;
  }
  return finishParts(parts, 0);
}

/// Begins to make the parts of a slot, and stores earlier ones meanwhile. They are made on several
/// threads and stored in order, so that errors are those of one thread.
Status Executor::addParts(Parts &parts, int slotNumber, int64_t microBatch, const std::string &what,
                          const PartMaker &make) {
  const Slot &slot = stageCode->slots[slotNumber];
  const bool hasParts = contents->hasArena() && arith == kernels::Arith::Native;
  auto owned = std::make_shared<program::OwnedIndices>(
      program->mesh, program->tensors[slot.tensor].piece, coordinates);
  const int64_t all = std::max<int64_t>(owned->size(), 1);
  const int64_t atOnce = hasParts ? std::min(parts.elementsPerPart, all) : all;
  const auto policy = parts.numThreads > 1 ? std::launch::async : std::launch::deferred;
  for (int64_t begin = 0; begin == 0 || begin < owned->size(); begin += atOnce) {
    const int64_t end = std::min(begin + atOnce, owned->size());
    const bool isWhole = begin == 0 && end == owned->size();
    kernels::TensorType type =
        isWhole ? slot.type : kernels::TensorType{slot.type.dtype, {end - begin}};
    if (Status status = finishParts(parts, size_t(std::max(parts.numThreads, 1) - 1)); !status)
      return status;
    parts.ahead.push_back({slotNumber, microBatch, begin, isWhole, what,
                           std::async(policy, [make, owned, begin, end, type] {
                             return make(owned->range(begin, end), type);
                           })});
  }
  return Status::ok();
}

/// Stores parts, the oldest first, until at most `mostLeft` are left.
Status Executor::finishParts(Parts &parts, size_t mostLeft) {
  while (parts.ahead.size() > mostLeft) {
    Parts::Part part = std::move(parts.ahead.front());
    parts.ahead.pop_front();
    try {
      Result<Tensor> made = part.elements.get();
      if (!made)
        return Error{made.error().code, part.what + ": " + made.error().message};
      if (part.isWhole)
        contents->setSlot(part.slot, part.microBatch, *made);
      else
        contents->setPart(part.slot, part.microBatch, part.begin, *made);
    } catch (const kernels::KernelError &error) {
      return failed(part.what, error);
    }
  }
  return Status::ok();
}

/// Loads the block's inputs that no earlier block has loaded.
Status Executor::loadInputs(const StepInputs &inputs, const Action &action) {
  int64_t microBatch = action.microBatch;
  Parts parts;
  if (inputs.pieces)
    parts.numThreads = inputs.numThreads;
  else // whole pieces, because each call converts the whole tensor
    parts.elementsPerPart = std::numeric_limits<int64_t>::max();
  for (int i : readSlots.at(action)) {
    const Slot &slot = stageCode->slots[i];
    if (slot.role != Role::Input || contents->holds(i, microBatch))
      continue;
    const program::GlobalTensor &tensor = program->tensors[slot.tensor];
    std::string what = "input \"" + tensor.name + "\" of micro-batch " + std::to_string(microBatch);
    auto make = [this, &inputs, &tensor, microBatch](const std::vector<int64_t> &indices,
                                                     const kernels::TensorType &type) {
      return inputPiece(inputs, microBatch, tensor, indices, type);
    };
    if (Status status = addParts(parts, i, microBatch, what, make); !status)
      return status;
  }
  return finishParts(parts, 0);
}

Result<Tensor> Executor::inputPiece(const StepInputs &inputs, int64_t microBatch,
                                    const program::GlobalTensor &tensor,
                                    const std::vector<int64_t> &indices,
                                    const kernels::TensorType &type) const {
  if (inputs.pieces)
    return inputs.pieces(microBatch, tensor, indices, type);
  const auto &provided = inputs.microBatches[microBatch];
  auto found = provided.find(tensor.name);
  kernels::require(found != provided.end(), "it is not provided");
  return pick(convert(found->second, tensor.type, arith), indices, type);
}

} // namespace tbc::runtime
