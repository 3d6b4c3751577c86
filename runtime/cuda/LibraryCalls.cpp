//===- LibraryCalls.cpp - Regions executed by NVIDIA's libraries -----------===//

#include "runtime/cuda/LibraryCalls.h"

#include <algorithm>

namespace tbc::cuda {

using program::BlockId;
using program::Instruction;
using program::Region;
using program::ValueId;

Status LibraryCalls::prepare(BlockId id) {
  if (matmuls)
    if (Status status = prepareMatmuls(id); !status)
      return status;
  if (!plans)
    return Status::ok();
  std::map<int, std::set<ValueId>> reads;
  for (const Region &region : code().block(id).regions)
    if (region.count == 1 && isCudnnOp(instructionAt(id, region.first).op))
      if (Status status = prepareCudnn(id, region, reads); !status)
        return status;
  std::set<int> unread = unreadRegions(code().block(id), reads);
  blocks[id].leftOut.insert(unread.begin(), unread.end());
  return Status::ok();
}

Status LibraryCalls::prepareMatmuls(BlockId id) {
  const program::Block &block = code().block(id);
  Epilogues found = findEpilogues(code(), block);
  for (const auto &[why, count] : found.apart)
    apart[why] += count;
  for (const Epilogue &epilogue : found.list)
    if (Status status = prepareEpilogue(id, epilogue); !status)
      return status;
  for (const Region &region : block.regions)
    if (region.count == 1 && instructionAt(id, region.first).op == "einsum" &&
        !isLeftOut(id, region.first))
      if (Status status = prepareMatmul(id, region.first); !status)
        return status;
  return Status::ok();
}

const LibraryCalls::Call *LibraryCalls::find(BlockId id, int first) const {
  auto block = blocks.find(id);
  if (block == blocks.end())
    return nullptr;
  auto call = block->second.calls.find(first);
  return call == block->second.calls.end() ? nullptr : &call->second;
}

bool LibraryCalls::isLeftOut(BlockId id, int instruction) const {
  auto block = blocks.find(id);
  return block != blocks.end() && block->second.leftOut.count(instruction) > 0;
}

Error LibraryCalls::at(BlockId id, int index, const Error &error) const {
  return {error.code, describe(program, stage, id, index) + ": " + error.message};
}

//===----------------------------------------------------------------------===//
// Matmuls
//===----------------------------------------------------------------------===//

/// Prepares an einsum as a matmul, if it is one.
Status LibraryCalls::prepareMatmul(BlockId id, int index) {
  const Instruction &einsum = instructionAt(id, index);
  auto found = einsumMatmulOf(code(), einsum, typeOf(einsum.results[0]));
  if (!found) {
    ++noMatmuls[found.error().message];
    return Status::ok();
  }
  ValueId a = einsum.operands[found->swaps ? 1 : 0], b = einsum.operands[found->swaps ? 0 : 1];
  if (fp8) {
    auto enqueue = inFp8(einsum, *found, found->shape);
    if (enqueue) {
      ++numMatmuls, ++numInFp8;
      blocks[id].calls[index] = [enqueue = *enqueue, a, b, c = einsum.results[0]](
                                    const Stream &stream, const AddressOf &addressOf) {
        return enqueue(stream, {addressOf(a), addressOf(b), addressOf(c)});
      };
      return Status::ok();
    }
    if (enqueue.error().code != ErrorCode::Usage)
      return at(id, index, enqueue.error());
    ++notInFp8[enqueue.error().message];
  }
  auto matmul = matmuls->find(found->shape);
  if (!matmul)
    return at(id, index, matmul.error());
  if (!*matmul) {
    ++noMatmuls["the library has no way"];
    return Status::ok();
  }
  ++numMatmuls;
  blocks[id].calls[index] = [matmul = *matmul, a, b, c = einsum.results[0]](
                                const Stream &stream, const AddressOf &addressOf) {
    return matmul->enqueue(stream, addressOf(a), addressOf(b), addressOf(c));
  };
  return Status::ok();
}

/// Returns the fp8 matmul of this shape: that of the einsum with its epilogue.
Result<Fp8Matmuls::Enqueue> LibraryCalls::inFp8(const Instruction &einsum,
                                                const EinsumMatmul &matmul,
                                                const MatmulShape &shape) const {
  ValueId a = einsum.operands[matmul.swaps ? 1 : 0], b = einsum.operands[matmul.swaps ? 0 : 1];
  return fp8->find({shape, kernels::numElements(typeOf(a).shape),
                    kernels::numElements(typeOf(b).shape), gradients[size_t(a)],
                    gradients[size_t(b)]});
}

/// Returns the shape of the matmul alone, with the same result type.
static MatmulShape withoutEpilogue(MatmulShape shape) {
  shape.epilogue = CublasEpilogue::Default;
  shape.adds = false;
  return shape;
}

/// Prepares a matmul with its epilogue if the library supports it. Otherwise both run separately.
Status LibraryCalls::prepareEpilogue(BlockId id, const Epilogue &e) {
  const Instruction &einsum = instructionAt(id, e.einsum);
  auto found = epilogueMatmulOf(code(), einsum, e);
  if (!found) {
    if (!found.error().message.empty()) // else prepareMatmul gives the reason
      ++apart[found.error().message];
    return Status::ok();
  }
  const MatmulShape &shape = found->shape;
  Fp8Matmuls::Enqueue enqueue;
  if (fp8) {
    auto made = inFp8(einsum, *found, shape);
    if (!made && made.error().code != ErrorCode::Usage)
      return at(id, e.einsum, made.error());
    // fp8 without the epilogue is preferred to a wider type with it.
    if (!made) {
      auto alone = inFp8(einsum, *found, withoutEpilogue(shape));
      if (!alone && alone.error().code != ErrorCode::Usage)
        return at(id, e.einsum, alone.error());
      if (alone) {
        ++apart[made.error().message + ", in fp8"];
        return Status::ok(); // prepareMatmul prepares it
      }
    }
    if (made)
      enqueue = *made;
    ++(made ? numInFp8 : notInFp8[made.error().message]);
  }
  if (!enqueue) {
    auto matmul = matmuls->find(shape);
    if (!matmul)
      return at(id, e.einsum, matmul.error());
    if (!*matmul) {
      ++apart["the library has no way"];
      return Status::ok();
    }
    enqueue = [matmul = *matmul](const Stream &stream, const MatmulAddresses &addresses) {
      return matmul->enqueue(stream, addresses);
    };
  }
  ++numMatmuls;
  ++epilogues[e.name()];
  blocks[id].leftOut.insert(e.leftOut.begin(), e.leftOut.end());
  ValueId a = einsum.operands[found->swaps ? 1 : 0], b = einsum.operands[found->swaps ? 0 : 1];
  blocks[id].calls[e.region.first] = [enqueue, e, a, b](const Stream &stream,
                                                        const AddressOf &addressOf) {
    auto place = [&](const std::optional<ValueId> &value) {
      return value ? addressOf(*value) : DeviceAddress(0);
    };
    return enqueue(stream, {addressOf(a), addressOf(b), addressOf(e.result), place(e.bias),
                            place(e.geluInput), place(e.added)});
  };
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Attention and convolution
//===----------------------------------------------------------------------===//

Status LibraryCalls::prepareCudnn(BlockId id, const Region &region,
                                  std::map<int, std::set<ValueId>> &reads) {
  const Instruction &instruction = instructionAt(id, region.first);
  Result<CudnnWork> work = cudnnWorkOf(
      cudnnRequestOf(program, stage, id, region, plans->version(), plans->onDevice().capability()));
  if (!work) {
    ++notByCudnn[work.error().message];
    return Status::ok();
  }
  std::vector<const CudnnPlan *> found;
  int64_t scratch = 0, bytes = 0;
  for (const CudnnWork::Step &step : work->steps) {
    auto plan = plans->find(step.graph);
    if (!plan && plan.error().code != ErrorCode::Usage)
      return at(id, region.first, plan.error());
    if (!plan) {
      ++notByCudnn[instruction.op + ", " + plan.error().message];
      return Status::ok();
    }
    found.push_back(*plan);
    bytes = std::max(bytes, aligned((*plan)->workspaceBytes()));
  }
  // Memory outside all plans stays small compared with a device's memory.
  constexpr int64_t mostBytes = int64_t(2) << 30;
  for (int64_t each : work->scratchBytes)
    scratch += aligned(each);
  if (bytes + scratch > mostBytes) {
    ++notByCudnn[instruction.op + " that needs more than 2 GiB to work in"];
    return Status::ok();
  }
  if (Status status = plans->reserve(bytes + scratch); !status) {
    if (status.error().code != ErrorCode::Usage)
      return at(id, region.first, status.error());
    ++notByCudnn[instruction.op + " that finds no memory to work in"];
    return Status::ok();
  }
  ++byCudnn[instruction.op];
  reads[region.first] = valuesRead(*work, instruction);
  blocks[id].calls[region.first] =
      [plans = plans.get(), work = *work, found, bytes, operands = instruction.operands,
       results = instruction.results](const Stream &stream, const AddressOf &addressOf) {
        // The graphs' workspace comes first, followed by the tensors passed between them.
        std::vector<DeviceAddress> scratch;
        DeviceAddress next = plans->workspace() + DeviceAddress(bytes);
        for (int64_t each : work.scratchBytes) {
          scratch.push_back(next);
          next += DeviceAddress(aligned(each));
        }
        for (size_t i = 0; i < found.size(); ++i) {
          std::map<int, DeviceAddress> addresses;
          for (auto [tensor, place] : work.steps[i].places) {
            auto number = size_t(place.number);
            const DeviceAddress base = place.of == CudnnWork::Place::Of::Scratch ? scratch[number]
                                       : place.of == CudnnWork::Place::Of::Result
                                           ? addressOf(results[number])
                                           : addressOf(operands[number]);
            addresses[tensor] = base + DeviceAddress(place.firstByte);
          }
          if (Status status = found[i]->enqueue(stream, addresses, plans->workspace()); !status)
            return status;
        }
        return Status::ok();
      };
  return Status::ok();
}

std::vector<std::string> LibraryCalls::sentences() const {
  std::vector<std::string> list;
  if (!byCudnn.empty())
    list.push_back("by cuDNN: " + describe(byCudnn));
  if (!notByCudnn.empty())
    list.push_back("by plain kernels, not by cuDNN: " + describe(notByCudnn));
  if (!matmuls)
    return list;
  std::string others;
  for (const auto &[why, count] : noMatmuls)
    others += (others.empty() ? "" : ", ") + std::to_string(count) + " for " + why;
  list.push_back("matmuls: " + std::to_string(numMatmuls) + " by cuBLASLt" +
                 (others.empty() ? "" : "; by plain kernels " + others));
  if (fp8)
    list.push_back("in fp8: " + std::to_string(numInFp8) + " of the matmuls, by way of " +
                   std::to_string(fp8->bytes()) + " bytes beside the memory plan" +
                   (notInFp8.empty() ? "" : "; not " + describe(notInFp8)));
  if (!epilogues.empty())
    list.push_back("with their matmul, by cuBLASLt: " + describe(epilogues));
  if (!apart.empty())
    list.push_back("apart from their matmul: " + describe(apart));
  return list;
}

} // namespace tbc::cuda
