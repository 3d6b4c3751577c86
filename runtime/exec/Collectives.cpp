//===- Collectives.cpp - A Program's communication over a Communicator -----===//

#include "runtime/exec/Collectives.h"
#include "runtime/comm/Reduce.h"
#include "runtime/exec/Packing.h"

#include <algorithm>
#include <numeric>

namespace tbc::runtime {

using kernels::Tensor;
using kernels::TensorType;
using program::Communication;
using program::InstructionKind;

GroupPlace groupPlace(const program::Program &program, const program::Instruction &instruction,
                      const std::vector<int64_t> &coordinates) {
  GroupPlace place;
  const Communication &comm = instruction.comm;
  if (instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv) {
    std::vector<int64_t> peer = coordinates;
    peer[program.pipelineAxis] = comm.peerStage;
    place.ranks = {program.mesh.rankOf(peer)};
    return place;
  }
  place.ranks = program::groupOf(program, comm, coordinates);
  int64_t self = program.mesh.rankOf(coordinates);
  place.index = std::find(place.ranks.begin(), place.ranks.end(), self) - place.ranks.begin();
  return place;
}

static std::vector<Indices> allShards(const kernels::Shape &full, int dim,
                                      const std::vector<program::SegmentShape> &segments,
                                      int64_t n) {
  std::vector<Indices> shards;
  for (int64_t i = 0; i < n; ++i)
    shards.push_back(shardIndices(full, dim, segments, n, i));
  return shards;
}

/// Splits a buffer into n equal parts.
static std::vector<Tensor> equalParts(const Tensor &buffer, int64_t n) {
  std::vector<Tensor> parts;
  int64_t share = buffer.numElements() / n;
  for (int64_t i = 0; i < n; ++i)
    parts.push_back(comm::cutFlat(buffer, i * share, share));
  return parts;
}

/// Concatenates the given shards of `tensor`.
static Tensor packShards(const Tensor &tensor, const std::vector<Indices> &shards) {
  Indices all;
  for (const Indices &shard : shards)
    all.insert(all.end(), shard.begin(), shard.end());
  TensorType type{tensor.dtype(), {static_cast<int64_t>(all.size())}};
  return pick(tensor, all, type);
}

static Result<Tensor> allGather(comm::Communicator &communicator, const Communication &comm,
                                const GroupPlace &group, const Tensor &input,
                                const TensorType &resultType, const std::string &place) {
  int64_t n = static_cast<int64_t>(group.ranks.size());
  Result<Tensor> joined = communicator.allGather(group.ranks, input, place)->wait();
  if (!joined)
    return joined;
  return runtime::place(equalParts(*joined, n),
                        allShards(resultType.shape, comm.dim, comm.segments, n), resultType);
}

static Result<Tensor> reduceScatter(comm::Communicator &communicator, const Communication &comm,
                                    const GroupPlace &group, const Tensor &input,
                                    const TensorType &resultType, const std::string &place) {
  int64_t n = static_cast<int64_t>(group.ranks.size());
  Tensor packed = packShards(input, allShards(input.shape(), comm.dim, comm.segments, n));
  Result<Tensor> part = communicator.reduceScatter(group.ranks, packed, place)->wait();
  if (!part)
    return part;
  return part->reshaped(resultType.shape);
}

static Result<Tensor> allToAll(comm::Communicator &communicator, const Communication &comm,
                               const GroupPlace &group, const Tensor &input,
                               const TensorType &resultType, const std::string &place) {
  int64_t n = static_cast<int64_t>(group.ranks.size());
  Tensor packed = packShards(input, allShards(input.shape(), comm.splitDim, comm.splitSegments, n));
  Result<Tensor> exchanged = communicator.allToAll(group.ranks, packed, place)->wait();
  if (!exchanged)
    return exchanged;
  // Each part is local along both dims; in the result `dim` is full.
  return runtime::place(equalParts(*exchanged, n),
                        allShards(resultType.shape, comm.dim, comm.segments, n), resultType);
}

/// Sends to the next rank of the group and receives from the previous one; any backend can do this.
/// These are the only messages between ranks of one stage, in program order on both sides.
static Result<Tensor> permute(comm::Communicator &communicator, const GroupPlace &group,
                              const Tensor &input, const std::string &place) {
  int64_t n = static_cast<int64_t>(group.ranks.size());
  if (n == 1)
    return input;
  const comm::Tag ring(0);
  comm::RequestPtr sent = communicator.send(group.ranks[(group.index + 1) % n], ring, input, place);
  Result<Tensor> received =
      communicator.recv(group.ranks[(group.index + n - 1) % n], ring, input.type(), place)->wait();
  Result<Tensor> gone = sent->wait();
  return !received || gone ? std::move(received) : std::move(gone);
}

//===----------------------------------------------------------------------===//
// Several tensors at once
//===----------------------------------------------------------------------===//

/// Returns the parts of tensor `t`, one per rank. For each rank in turn, `joint` holds `sizes[t]`
/// elements of each tensor t.
static std::vector<Tensor> partsOf(const Tensor &joint, int64_t n,
                                   const std::vector<int64_t> &sizes, size_t t) {
  int64_t before = std::accumulate(sizes.begin(), sizes.begin() + int64_t(t), int64_t(0));
  int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < n; ++rank)
    parts.push_back(comm::cutFlat(joint, rank * all + before, sizes[t]));
  return parts;
}

/// Concatenates, rank after rank, this rank's chunk of each tensor.
static Tensor packChunks(const std::vector<Tensor> &tensors, int64_t n) {
  std::vector<Tensor> chunks;
  for (int64_t rank = 0; rank < n; ++rank)
    for (const Tensor &tensor : tensors)
      chunks.push_back(
          packShards(tensor, {shardIndices(tensor.shape(), Communication::flatDim, {}, n, rank)}));
  return comm::joinFlat(chunks);
}

static std::vector<int64_t> sizesOf(const std::vector<TensorType> &types) {
  std::vector<int64_t> sizes;
  for (const TensorType &type : types)
    sizes.push_back(kernels::numElements(type.shape));
  return sizes;
}

/// Executes a collective of several tensors as one collective of a joint buffer.
static Result<std::vector<Tensor>>
communicateJointly(comm::Communicator &communicator, const program::Instruction &instruction,
                   const GroupPlace &group, const std::vector<Tensor> &inputs,
                   const std::vector<TensorType> &resultTypes, const std::string &place) {
  int64_t n = static_cast<int64_t>(group.ranks.size());
  bool gathers = instruction.kind == InstructionKind::AllGather;
  bool scatters = instruction.kind == InstructionKind::ReduceScatter;
  std::vector<TensorType> localTypes;
  for (size_t t = 0; t < inputs.size(); ++t)
    localTypes.push_back(gathers ? inputs[t].type() : resultTypes[t]);
  std::vector<int64_t> sizes = sizesOf(localTypes);
  auto kind = instruction.comm.reduce == program::ReduceKind::Sum ? comm::ReduceKind::Sum
                                                                  : comm::ReduceKind::Max;
  Result<Tensor> joint =
      gathers    ? communicator.allGather(group.ranks, comm::joinFlat(inputs), place)->wait()
      : scatters ? communicator.reduceScatter(group.ranks, packChunks(inputs, n), place)->wait()
                 : communicator.allReduce(group.ranks, kind, comm::joinFlat(inputs), place)->wait();
  if (!joint)
    return joint.error();
  std::vector<Tensor> results;
  for (size_t t = 0; t < inputs.size(); ++t) {
    std::vector<Tensor> parts = partsOf(*joint, gathers ? n : 1, sizes, t);
    results.push_back(
        gathers
            ? runtime::place(parts, allShards(resultTypes[t].shape, Communication::flatDim, {}, n),
                             resultTypes[t])
            : parts[0].reshaped(resultTypes[t].shape));
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// Executes the instruction for one tensor; a receive has no input.
static Result<Tensor> communicateOne(comm::Communicator &communicator,
                                     const program::Instruction &instruction,
                                     const GroupPlace &group, const Tensor &input,
                                     const TensorType &resultType, const std::string &place) {
  const Communication &comm = instruction.comm;
  switch (instruction.kind) {
  case InstructionKind::AllReduce: {
    auto kind =
        comm.reduce == program::ReduceKind::Sum ? comm::ReduceKind::Sum : comm::ReduceKind::Max;
    return communicator.allReduce(group.ranks, kind, input, place)->wait();
  }
  case InstructionKind::AllGather:
    return allGather(communicator, comm, group, input, resultType, place);
  case InstructionKind::ReduceScatter:
    return reduceScatter(communicator, comm, group, input, resultType, place);
  case InstructionKind::AllToAll:
    return allToAll(communicator, comm, group, input, resultType, place);
  case InstructionKind::ShardSlice: {
    int64_t n = static_cast<int64_t>(group.ranks.size());
    return pick(input, shardIndices(input.shape(), comm.dim, comm.segments, n, group.index),
                resultType);
  }
  case InstructionKind::Permute:
    return permute(communicator, group, input, place);
  case InstructionKind::Send:
    return communicator.send(group.ranks[0], {comm.channel, comm.lane}, input, place)->wait();
  case InstructionKind::Recv:
    return communicator.recv(group.ranks[0], {comm.channel, comm.lane}, resultType, place)->wait();
  case InstructionKind::Kernel:
  case InstructionKind::Offload:
  case InstructionKind::Fetch:
    break;
  }
  return Error{ErrorCode::Other, place + ": not a communication"};
}

Result<std::vector<Tensor>> communicate(comm::Communicator &communicator,
                                        const program::Instruction &instruction,
                                        const GroupPlace &group, const std::vector<Tensor> &inputs,
                                        const std::vector<TensorType> &resultTypes,
                                        const std::string &place) {
  if (inputs.size() > 1)
    return communicateJointly(communicator, instruction, group, inputs, resultTypes, place);
  Result<Tensor> result =
      communicateOne(communicator, instruction, group, inputs.empty() ? Tensor() : inputs[0],
                     resultTypes.empty() ? TensorType() : resultTypes[0], place);
  if (!result)
    return result.error();
  std::vector<Tensor> results;
  if (!resultTypes.empty())
    results.push_back(std::move(*result));
  return results;
}

} // namespace tbc::runtime
