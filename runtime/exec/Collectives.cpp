//===- Collectives.cpp - A Program's communication over a Communicator -----===//

#include "runtime/exec/Collectives.h"
#include "runtime/comm/Reduce.h"
#include "runtime/exec/Packing.h"

#include <algorithm>

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

/// The parts of a buffer of n equal parts.
static std::vector<Tensor> equalParts(const Tensor &buffer, int64_t n) {
  std::vector<Tensor> parts;
  int64_t share = buffer.numElements() / n;
  for (int64_t i = 0; i < n; ++i)
    parts.push_back(comm::cutFlat(buffer, i * share, share));
  return parts;
}

/// The shards of `tensor` that `shards` names, one after the other.
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

/// A send to the next of the group and a receive from the one before, which any backend has. They
/// are the only messages between ranks of one stage, in the order of the program on both sides.
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

Result<Tensor> communicate(comm::Communicator &communicator,
                           const program::Instruction &instruction, const GroupPlace &group,
                           const Tensor &input, const TensorType &resultType,
                           const std::string &place) {
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
    break;
  }
  return Error{ErrorCode::Other, place + ": not a communication"};
}

} // namespace tbc::runtime
