//===- CudaCollectives.cpp - A Program's communication on a GPU ------------===//

#include "runtime/cuda/CudaCollectives.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace tbc::cuda {

using program::Instruction;
using program::InstructionKind;
using runtime::GroupPlace;
using runtime::MemoryLayout;
using runtime::Stretches;

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static int64_t sizeBytes(const DeviceRuns &runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t(0),
                         [](int64_t sum, const DeviceRun &run) { return sum + run.bytes; });
}

/// Appends a copy, as another row of the last one if it continues its pattern.
static void append(std::vector<RowCopy> &copies, DeviceAddress to, DeviceAddress from,
                   int64_t bytes) {
  if (copies.empty() || copies.back().rowBytes != bytes) {
    copies.push_back({to, from, bytes, bytes, bytes, 1});
    return;
  }
  RowCopy &last = copies.back();
  int64_t toPitch = int64_t(to - last.to), fromPitch = int64_t(from - last.from);
  // The driver's limit for pitches: CU_DEVICE_ATTRIBUTE_MAX_PITCH is 2^31 - 1.
  constexpr int64_t mostPitch = INT32_MAX;
  bool isForward =
      toPitch >= bytes && fromPitch >= bytes && toPitch <= mostPitch && fromPitch <= mostPitch;
  if (last.rows == 1 && isForward) {
    last.toPitch = toPitch, last.fromPitch = fromPitch, last.rows = 2;
  } else if (last.rows > 1 && toPitch == last.toPitch * last.rows &&
             fromPitch == last.fromPitch * last.rows) {
    ++last.rows;
  } else {
    copies.push_back({to, from, bytes, bytes, bytes, 1});
  }
}

std::vector<RowCopy> rowCopies(const DeviceRuns &from, const DeviceRuns &to) {
  std::vector<RowCopy> copies;
  size_t index = 0;
  int64_t offset = 0; // within from[index]
  for (const DeviceRun &run : to)
    for (int64_t done = 0; done < run.bytes;) {
      int64_t bytes = std::min(run.bytes - done, from[index].bytes - offset);
      append(copies, run.address + DeviceAddress(done), from[index].address + DeviceAddress(offset),
             bytes);
      done += bytes, offset += bytes;
      if (offset == from[index].bytes)
        ++index, offset = 0;
    }
  return copies;
}

Status copyRuns(const Stream &stream, const DeviceRuns &from, const DeviceRuns &to) {
  for (const RowCopy &copy : rowCopies(from, to)) {
    Status status = copy.rows == 1 ? stream.copyWithin(copy.to, copy.from, copy.rowBytes)
                                   : stream.copyRows(copy.to, copy.toPitch, copy.from,
                                                     copy.fromPitch, copy.rowBytes, copy.rows);
    if (!status)
      return status;
  }
  return Status::ok();
}

DeviceRuns runsOf(const runtime::Stretches &part, DeviceAddress base) {
  DeviceRuns runs;
  for (const runtime::Stretch &stretch : part)
    runs.push_back({base + DeviceAddress(stretch.offset), stretch.bytes});
  return runs;
}

static bool overlap(const DeviceTensor &a, const DeviceTensor &b) {
  return a.address < b.address + DeviceAddress(b.bytes()) &&
         b.address < a.address + DeviceAddress(a.bytes());
}

namespace {

/// The scratch memory of one instruction, allocated at once when its size is known.
class Pieces {
public:
  /// Returns the number of a new piece.
  size_t add(int64_t bytes) {
    begins.push_back(total);
    total += aligned(bytes);
    return begins.size() - 1;
  }
  void take(const ScratchFn &scratch) { base = total ? scratch(total) : 0; }
  DeviceAddress at(size_t piece) const { return base + DeviceAddress(begins[piece]); }

private:
  std::vector<int64_t> begins;
  int64_t total = 0;
  DeviceAddress base = 0;
};

/// Pairs of a tensor's number and the number of its piece.
using TensorPieces = std::vector<std::pair<size_t, size_t>>;

/// One instruction.
struct Work {
  DeviceCommunicator *communicator;
  const Instruction &instruction;
  const GroupPlace &group;
  const MemoryLayout &layout;
  std::vector<DeviceTensor> inputs;
  const std::vector<DeviceTensor> &results;
  bool isUniform;
  const Stream &stream;
  const ScratchFn &scratch;
  const std::string &place;

  int64_t numRanks() const { return int64_t(group.ranks.size()); }
  /// Returns whether writing a result may overwrite an operand, unless the operand begins at
  /// `mayShare`.
  bool isSpoilt(size_t input, DeviceAddress mayShare, size_t result) const {
    return inputs[input].address != mayShare && overlap(inputs[input], results[result]);
  }
  Status copyWhole(DeviceAddress to, const DeviceTensor &tensor) const {
    return copyRuns(stream, {{tensor.address, tensor.bytes()}}, {{to, tensor.bytes()}});
  }
  /// Copies inputs to pieces and reads them there from now on.
  Status moveAside(const TensorPieces &copied, const Pieces &pieces);
  /// Returns the operands, with the element counts of `shorter`: the inputs or the results.
  std::vector<DeviceOperand> operandsCountedIn(const std::vector<DeviceTensor> &shorter) const;

  Status allReduce();
  Status allGather();
  Status reduceScatter();
  Status allToAll();
  Status slice();
  Status permute();
};

} // namespace

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// Returns whether the parts of a tensor are consecutive equal shares of it.
static bool areShares(const std::vector<std::vector<Stretches>> &parts, size_t tensor,
                      int64_t shareBytes) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Stretches &part = parts[i][tensor];
    if (part.size() != 1 || part[0].offset != int64_t(i) * shareBytes ||
        part[0].bytes != shareBytes)
      return false;
  }
  return true;
}

static comm::ReduceKind reduceKindOf(const Instruction &instruction) {
  return instruction.comm.reduce == program::ReduceKind::Sum ? comm::ReduceKind::Sum
                                                             : comm::ReduceKind::Max;
}

Status Work::moveAside(const TensorPieces &copied, const Pieces &pieces) {
  for (auto [t, piece] : copied) {
    if (Status status = copyWhole(pieces.at(piece), inputs[t]); !status)
      return status;
    inputs[t].address = pieces.at(piece);
  }
  return Status::ok();
}

std::vector<DeviceOperand> Work::operandsCountedIn(const std::vector<DeviceTensor> &shorter) const {
  std::vector<DeviceOperand> operands;
  for (size_t t = 0; t < inputs.size(); ++t)
    operands.push_back({inputs[t].address, results[t].address,
                        kernels::numElements(shorter[t].type.shape), shorter[t].type.dtype});
  return operands;
}

Status Work::allReduce() {
  // Results may overlap other operands.
  Pieces pieces;
  TensorPieces copied;
  for (size_t t = 0; t < inputs.size(); ++t)
    for (size_t r = 0; r < results.size(); ++r)
      if (isSpoilt(t, t == r ? results[r].address : 0, r)) {
        copied.push_back({t, pieces.add(inputs[t].bytes())});
        break;
      }
  pieces.take(scratch);
  if (Status status = moveAside(copied, pieces); !status)
    return status;
  return communicator->enqueueAllReduce(group.ranks, reduceKindOf(instruction),
                                        operandsCountedIn(inputs), stream, place);
}

Status Work::allGather() {
  int64_t n = numRanks();
  Pieces pieces;
  TensorPieces copied, scattered;
  for (size_t t = 0; t < inputs.size(); ++t) {
    int64_t share = inputs[t].bytes();
    bool isDirect = areShares(layout.results, t, share);
    if (!isDirect)
      scattered.push_back({t, pieces.add(n * share)});
    DeviceAddress own = results[t].address + DeviceAddress(group.index * share);
    for (size_t r = 0; r < results.size(); ++r)
      // The input may lie at its own part, but this offset differs between ranks.
      if (isSpoilt(t, t == r && isDirect && !isUniform ? own : 0, r)) {
        copied.push_back({t, pieces.add(share)});
        break;
      }
  }
  pieces.take(scratch);
  if (Status status = moveAside(copied, pieces); !status)
    return status;
  std::vector<DeviceOperand> operands = operandsCountedIn(inputs);
  for (auto [t, piece] : scattered)
    operands[t].to = pieces.at(piece);
  if (Status status = communicator->enqueueAllGather(group.ranks, operands, stream, place); !status)
    return status;
  for (auto [t, piece] : scattered)
    for (int64_t i = 0; i < n; ++i) {
      DeviceRuns to = runsOf(layout.results[size_t(i)][t], results[t].address);
      DeviceAddress from = operands[t].to + DeviceAddress(i * inputs[t].bytes());
      if (Status status = copyRuns(stream, {{from, sizeBytes(to)}}, to); !status)
        return status;
    }
  return Status::ok();
}

Status Work::reduceScatter() {
  int64_t n = numRanks();
  Pieces pieces;
  TensorPieces packed;
  for (size_t t = 0; t < inputs.size(); ++t) {
    int64_t share = results[t].bytes();
    bool isDirect = areShares(layout.inputs, t, share);
    for (size_t r = 0; r < results.size() && isDirect; ++r) {
      DeviceAddress own = inputs[t].address + DeviceAddress(group.index * share);
      isDirect =
          !overlap(inputs[t], results[r]) || (!isUniform && t == r && results[r].address == own);
    }
    if (!isDirect)
      packed.push_back({t, pieces.add(n * share)});
  }
  pieces.take(scratch);
  for (auto [t, piece] : packed) {
    int64_t share = results[t].bytes();
    for (int64_t i = 0; i < n; ++i) {
      DeviceRuns from = runsOf(layout.inputs[size_t(i)][t], inputs[t].address);
      DeviceAddress to = pieces.at(piece) + DeviceAddress(i * share);
      int64_t bytes = sizeBytes(from);
      Status status = copyRuns(stream, from, {{to, bytes}});
      if (status && bytes < share) // the padding of a flat cut
        status = stream.fill(to + DeviceAddress(bytes), 0, share - bytes);
      if (!status)
        return status;
    }
    inputs[t].address = pieces.at(piece);
  }
  return communicator->enqueueReduceScatter(group.ranks, operandsCountedIn(results), stream, place);
}

Status Work::allToAll() {
  int64_t n = numRanks();
  bool isApart = !overlap(inputs[0], results[0]);
  Pieces pieces;
  std::vector<size_t> sentPieces, receivedPieces;
  for (int64_t i = 0; i < n; ++i) {
    sentPieces.push_back(pieces.add(sizeBytes(runsOf(layout.inputs[size_t(i)][0], 0))));
    receivedPieces.push_back(pieces.add(sizeBytes(runsOf(layout.results[size_t(i)][0], 0))));
  }
  pieces.take(scratch);
  std::vector<DevicePart> sent, received;
  for (int64_t i = 0; i < n; ++i) {
    DeviceRuns from = runsOf(layout.inputs[size_t(i)][0], inputs[0].address);
    DeviceAddress at = pieces.at(sentPieces[size_t(i)]);
    if (from.size() == 1 && isApart)
      at = from[0].address;
    else if (Status status = copyRuns(stream, from, {{at, sizeBytes(from)}}); !status)
      return status;
    sent.push_back({i, at, sizeBytes(from)});
    DeviceRuns to = runsOf(layout.results[size_t(i)][0], results[0].address);
    received.push_back(
        {i, to.size() == 1 ? to[0].address : pieces.at(receivedPieces[size_t(i)]), sizeBytes(to)});
  }
  if (Status status =
          communicator->enqueueExchange(group.ranks, sent, received, stream, "all_to_all", place);
      !status)
    return status;
  for (int64_t i = 0; i < n; ++i) {
    DeviceRuns to = runsOf(layout.results[size_t(i)][0], results[0].address);
    if (to.size() == 1)
      continue;
    if (Status status = copyRuns(stream, {{received[size_t(i)].address, sizeBytes(to)}}, to);
        !status)
      return status;
  }
  return Status::ok();
}

Status Work::slice() {
  Pieces pieces;
  std::vector<DeviceRuns> from, to;
  std::vector<size_t> copies;
  for (size_t t = 0; t < inputs.size(); ++t) {
    from.push_back(runsOf(layout.inputs[0][t], inputs[t].address));
    to.push_back(runsOf(layout.results[0][t], results[t].address));
    copies.push_back(pieces.add(sizeBytes(to[t])));
  }
  bool isOver = false;
  for (size_t t = 0; t < inputs.size(); ++t)
    for (size_t r = 0; r < results.size(); ++r)
      isOver |= overlap(inputs[t], results[r]) && !(t == r && from[t] == to[r]);
  if (isOver)
    pieces.take(scratch);
  for (size_t t = 0; t < inputs.size() && isOver; ++t) {
    DeviceRuns copy = {{pieces.at(copies[t]), sizeBytes(to[t])}};
    if (Status status = copyRuns(stream, from[t], copy); !status)
      return status;
    from[t] = copy;
  }
  for (size_t t = 0; t < inputs.size(); ++t) {
    Status status = from[t] == to[t] ? Status::ok() : copyRuns(stream, from[t], to[t]);
    // Zeroes the padding of a flat cut, behind the elements of the last indices.
    int64_t bytes = sizeBytes(to[t]), rest = results[t].bytes() - bytes;
    if (status && rest > 0)
      status = stream.fill(results[t].address + DeviceAddress(bytes), 0, rest);
    if (!status)
      return status;
  }
  return Status::ok();
}

Status Work::permute() {
  int64_t n = numRanks(), bytes = inputs[0].bytes();
  if (n > 1 && overlap(inputs[0], results[0])) {
    DeviceAddress copy = scratch(bytes);
    if (Status status = copyWhole(copy, inputs[0]); !status)
      return status;
    inputs[0].address = copy;
  }
  if (n == 1)
    return inputs[0].address == results[0].address ? Status::ok()
                                                   : copyWhole(results[0].address, inputs[0]);
  return communicator->enqueueExchange(
      group.ranks, {{(group.index + 1) % n, inputs[0].address, bytes}},
      {{(group.index + n - 1) % n, results[0].address, bytes}}, stream, "permute", place);
}

bool canCommunicateOnDevice(const DeviceCommunicator *communicator, const Instruction &instruction,
                            const std::vector<DeviceTensor> &inputs, kernels::Arith arith) {
  if (instruction.kind == InstructionKind::ShardSlice)
    return true;
  if (!communicator || program::isHostCopy(instruction.kind))
    return false;
  if (instruction.kind != InstructionKind::AllReduce &&
      instruction.kind != InstructionKind::ReduceScatter)
    return true;
  if (arith != kernels::Arith::Native)
    return false;
  return std::all_of(inputs.begin(), inputs.end(), [&](const DeviceTensor &input) {
    return communicator->reduces(input.type.dtype, reduceKindOf(instruction));
  });
}

Status communicateOnDevice(DeviceCommunicator *communicator, const Instruction &instruction,
                           const GroupPlace &group, const MemoryLayout &layout,
                           const std::vector<DeviceTensor> &inputs,
                           const std::vector<DeviceTensor> &results, bool isUniform,
                           const Stream &stream, const ScratchFn &scratch,
                           const std::string &place) {
  Work work{communicator, instruction, group,  layout,  inputs,
            results,      isUniform,   stream, scratch, place};
  comm::Tag tag(instruction.comm.channel, instruction.comm.lane);
  switch (instruction.kind) {
  case InstructionKind::AllReduce:
    return work.allReduce();
  case InstructionKind::AllGather:
    return work.allGather();
  case InstructionKind::ReduceScatter:
    return work.reduceScatter();
  case InstructionKind::AllToAll:
    return work.allToAll();
  case InstructionKind::ShardSlice:
    return work.slice();
  case InstructionKind::Permute:
    return work.permute();
  case InstructionKind::Send:
    return communicator->enqueueSend(group.ranks[0], tag, inputs[0].address, inputs[0].bytes(),
                                     stream, place);
  case InstructionKind::Recv:
    return communicator->enqueueRecv(group.ranks[0], tag, results[0].address, results[0].bytes(),
                                     stream, place);
  case InstructionKind::Offload:
  case InstructionKind::Fetch:
  case InstructionKind::Kernel:
    break;
  }
  return Error{ErrorCode::Other, place + ": not a communication of GPUs"};
}

} // namespace tbc::cuda
