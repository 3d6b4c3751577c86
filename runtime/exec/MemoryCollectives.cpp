//===- MemoryCollectives.cpp - A Program's communication on memory ----------===//

#include "runtime/exec/MemoryCollectives.h"
#include "runtime/comm/ReduceRuns.h"

#include <algorithm>
#include <cstring>

namespace tbc::runtime {

using comm::ElementType;
using comm::Run;
using comm::Runs;
using kernels::Shape;
using kernels::TensorType;
using program::Communication;
using program::Instruction;
using program::InstructionKind;

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

static void append(Stretches &list, Stretch next) {
  if (next.bytes <= 0)
    return;
  if (!list.empty() && list.back().offset + list.back().bytes == next.offset)
    list.back().bytes += next.bytes;
  else
    list.push_back(next);
}

/// Returns how many elements of a flat cut index `index` holds, without padding.
static int64_t flatCount(int64_t numElements, int64_t n, int64_t index) {
  int64_t chunk = (numElements + n - 1) / n;
  return std::clamp<int64_t>(numElements - index * chunk, 0, chunk);
}

Stretches shardStretches(const Shape &full, int64_t width, int dim,
                         const std::vector<program::SegmentShape> &segments, int64_t n,
                         int64_t index) {
  Stretches list;
  int64_t numElements = kernels::numElements(full);
  if (dim == Communication::flatDim) {
    int64_t chunk = (numElements + n - 1) / n;
    append(list, {index * chunk * width, flatCount(numElements, n, index) * width});
    return list;
  }
  int64_t outerSize = 1, rowBytes = width;
  for (int d = 0; d < int(full.size()); ++d)
    (d < dim ? outerSize : rowBytes) *= d == dim ? 1 : full[d];
  for (int64_t outer = 0; outer < outerSize; ++outer) {
    int64_t base = outer * full[dim];
    for (const program::SegmentShape &segment : segments) {
      int64_t held = segment.k * segment.inner;
      for (int64_t o = 0; o < segment.outer; ++o)
        append(list, {(base + (o * n + index) * held) * rowBytes, held * rowBytes});
      base += segment.outer * n * held;
    }
  }
  return list;
}

static Stretches wholeOf(const TensorType &type) {
  Stretches list;
  append(list, {0, program::sizeBytes(type)});
  return list;
}

/// Returns the shard of one index for each tensor.
static std::vector<Stretches> shardsOf(const std::vector<TensorType> &types, int dim,
                                       const std::vector<program::SegmentShape> &segments,
                                       int64_t n, int64_t index) {
  std::vector<Stretches> list;
  for (const TensorType &type : types)
    list.push_back(
        shardStretches(type.shape, kernels::byteWidth(type.dtype), dim, segments, n, index));
  return list;
}

/// Returns the part of each local tensor without padding: as many elements as this index holds of
/// the full one.
static std::vector<Stretches> localsOf(const std::vector<TensorType> &local,
                                       const std::vector<TensorType> &full, int dim, int64_t n,
                                       int64_t index) {
  std::vector<Stretches> list;
  for (size_t t = 0; t < local.size(); ++t) {
    list.push_back(wholeOf(local[t]));
    if (dim != Communication::flatDim)
      continue;
    list.back().clear();
    int64_t count = flatCount(kernels::numElements(full[t].shape), n, index);
    append(list.back(), {0, count * kernels::byteWidth(local[t].dtype)});
  }
  return list;
}

MemoryLayout memoryLayout(const Instruction &instruction, const GroupPlace &group,
                          const std::vector<TensorType> &inputs,
                          const std::vector<TensorType> &results) {
  const Communication &comm = instruction.comm;
  int64_t n = int64_t(group.ranks.size());
  int dim = inputs.size() > 1 ? Communication::flatDim : comm.dim;
  MemoryLayout layout;
  switch (instruction.kind) {
  case InstructionKind::AllReduce:
    layout.inputs.emplace_back();
    for (const TensorType &type : inputs)
      layout.inputs[0].push_back(wholeOf(type));
    layout.results = layout.inputs;
    break;
  case InstructionKind::AllGather:
    layout.inputs.push_back(localsOf(inputs, results, dim, n, group.index));
    for (int64_t i = 0; i < n; ++i)
      layout.results.push_back(shardsOf(results, dim, comm.segments, n, i));
    break;
  case InstructionKind::ReduceScatter:
    for (int64_t i = 0; i < n; ++i)
      layout.inputs.push_back(shardsOf(inputs, dim, comm.segments, n, i));
    layout.results.push_back(localsOf(results, inputs, dim, n, group.index));
    break;
  case InstructionKind::AllToAll:
    for (int64_t i = 0; i < n; ++i) {
      layout.inputs.push_back(shardsOf(inputs, comm.splitDim, comm.splitSegments, n, i));
      layout.results.push_back(shardsOf(results, comm.dim, comm.segments, n, i));
    }
    break;
  case InstructionKind::ShardSlice:
    layout.inputs.push_back(shardsOf(inputs, dim, comm.segments, n, group.index));
    layout.results.push_back(localsOf(results, inputs, dim, n, group.index));
    break;
  default: // moves whole tensors
    break;
  }
  return layout;
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

static Runs runsOf(const std::vector<Stretches> &part, const std::vector<PlacedTensor> &tensors) {
  Runs runs;
  for (size_t t = 0; t < part.size(); ++t)
    for (const Stretch &stretch : part[t])
      runs.push_back({tensors[t].data + stretch.offset, stretch.bytes});
  return runs;
}

static std::vector<Runs> partsOf(const std::vector<std::vector<Stretches>> &parts,
                                 const std::vector<PlacedTensor> &tensors) {
  std::vector<Runs> list;
  for (const std::vector<Stretches> &part : parts)
    list.push_back(runsOf(part, tensors));
  return list;
}

/// Zeroes the padding of a flat cut, behind the elements of the last indices.
static void clearPadding(const std::vector<Stretches> &part,
                         const std::vector<PlacedTensor> &tensors) {
  for (size_t t = 0; t < part.size(); ++t) {
    int64_t end = part[t].empty() ? 0 : part[t].back().offset + part[t].back().bytes;
    if (end < tensors[t].bytes())
      std::memset(tensors[t].data + end, 0, size_t(tensors[t].bytes() - end));
  }
}

static void copyRuns(const Runs &from, const Runs &to) {
  comm::Cutter cutter(from);
  for (const Run &run : to)
    comm::pack(cutter.next(run.bytes), run.data);
}

/// Returns whether writing a result may overwrite an operand: they share bytes, and are not the
/// same tensor of an all_reduce.
static bool isSpoilt(const std::vector<PlacedTensor> &inputs,
                     const std::vector<PlacedTensor> &results, bool isElementwise) {
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t r = 0; r < results.size(); ++r) {
      bool isOver = inputs[i].data < results[r].data + results[r].bytes() &&
                    results[r].data < inputs[i].data + inputs[i].bytes();
      bool isSame = isElementwise && i == r && inputs[i].data == results[r].data;
      if (isOver && !isSame)
        return true;
    }
  return false;
}

/// See `permute` in Collectives.cpp.
static Status permute(comm::Communicator &communicator, const GroupPlace &group,
                      kernels::Arith arith, const PlacedTensor &input, const PlacedTensor &result,
                      const std::string &place) {
  int64_t n = int64_t(group.ranks.size());
  if (n == 1) {
    copyRuns({{input.data, input.bytes()}}, {{result.data, result.bytes()}});
    return Status::ok();
  }
  const comm::Tag ring(0);
  int64_t next = group.ranks[size_t((group.index + 1) % n)];
  int64_t before = group.ranks[size_t((group.index + n - 1) % n)];
  if (Status sent = communicator.sendBytes(next, ring, input.type, arith, input.data, place); !sent)
    return sent;
  return communicator.recvBytes(before, ring, result.type, arith, result.data, place);
}

static comm::ReduceKind reduceKindOf(const Communication &comm) {
  return comm.reduce == program::ReduceKind::Sum ? comm::ReduceKind::Sum : comm::ReduceKind::Max;
}

Status communicateOnMemory(comm::Communicator &communicator, const Instruction &instruction,
                           const GroupPlace &group, const MemoryLayout &layout,
                           kernels::Arith arith, std::vector<PlacedTensor> inputs,
                           const std::vector<PlacedTensor> &results, const std::string &place) {
  const Communication &comm = instruction.comm;
  std::vector<std::vector<unsigned char>> copies;
  if (isSpoilt(inputs, results, instruction.kind == InstructionKind::AllReduce))
    for (PlacedTensor &input : inputs) {
      copies.emplace_back(input.data, input.data + input.bytes());
      input.data = copies.back().data();
    }
  ElementType type;
  type.arith = arith;
  if (!inputs.empty())
    type.dtype = inputs[0].type.dtype;
  std::vector<Runs> from = partsOf(layout.inputs, inputs), to = partsOf(layout.results, results);
  comm::Tag tag(comm.channel, comm.lane);
  switch (instruction.kind) {
  case InstructionKind::AllReduce:
    return communicator.allReduceRuns(group.ranks, reduceKindOf(comm), type, from[0], to[0], place);
  case InstructionKind::AllGather:
    return communicator.allGatherRuns(group.ranks, type, from[0], to, place);
  case InstructionKind::ReduceScatter:
    clearPadding(layout.results[0], results);
    return communicator.reduceScatterRuns(group.ranks, type, from, to[0], place);
  case InstructionKind::AllToAll:
    return communicator.allToAllRuns(group.ranks, type, from, to, place);
  case InstructionKind::ShardSlice:
    clearPadding(layout.results[0], results);
    copyRuns(from[0], to[0]);
    return Status::ok();
  case InstructionKind::Permute:
    return permute(communicator, group, arith, inputs[0], results[0], place);
  case InstructionKind::Send:
    return communicator.sendBytes(group.ranks[0], tag, inputs[0].type, arith, inputs[0].data,
                                  place);
  case InstructionKind::Recv:
    return communicator.recvBytes(group.ranks[0], tag, results[0].type, arith, results[0].data,
                                  place);
  case InstructionKind::Offload:
  case InstructionKind::Fetch:
    copyRuns({{inputs[0].data, inputs[0].bytes()}}, {{results[0].data, results[0].bytes()}});
    return Status::ok();
  case InstructionKind::Kernel:
    break;
  }
  return Error{ErrorCode::Other, place + ": not a communication"};
}

//===----------------------------------------------------------------------===//
// In another type
//===----------------------------------------------------------------------===//

/// Allocates bf16 copies of the f32 `tensors` in `memory`.
static std::vector<PlacedTensor> narrowTwins(const std::vector<PlacedTensor> &tensors,
                                             std::vector<std::vector<uint16_t>> &memory) {
  std::vector<PlacedTensor> twins;
  for (const PlacedTensor &tensor : tensors) {
    memory.emplace_back(size_t(kernels::numElements(tensor.type.shape)));
    twins.push_back({reinterpret_cast<unsigned char *>(memory.back().data()),
                     {kernels::DType::BF16, tensor.type.shape}});
  }
  return twins;
}

Status communicateNarrowly(comm::Communicator &communicator, const Instruction &instruction,
                           const GroupPlace &group, const MemoryLayout &layout,
                           kernels::Arith arith, std::vector<PlacedTensor> inputs,
                           const std::vector<PlacedTensor> &results, const std::string &place) {
  std::vector<std::vector<uint16_t>> inputMemory, resultMemory;
  std::vector<PlacedTensor> from = narrowTwins(inputs, inputMemory);
  for (size_t t = 0; t < inputs.size(); ++t)
    comm::narrowToBF16(inputs[t].data, from[t].data, int64_t(inputMemory[t].size()));
  bool isElementwise = instruction.kind == InstructionKind::AllReduce;
  std::vector<PlacedTensor> to = isElementwise ? from : narrowTwins(results, resultMemory);
  Status status =
      communicateOnMemory(communicator, instruction, group, layout, arith, from, to, place);
  for (size_t t = 0; status && t < results.size(); ++t)
    comm::widenFromBF16(to[t].data, results[t].data, kernels::numElements(results[t].type.shape));
  return status;
}

} // namespace tbc::runtime
