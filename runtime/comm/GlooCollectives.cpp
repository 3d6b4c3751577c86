//===- GlooCollectives.cpp - Collectives over TCP --------------------------===//

#include "runtime/comm/GlooCommunicator.h"
#include "runtime/comm/Reduce.h"

#include <algorithm>

namespace tbc::comm {

using kernels::Arith;
using kernels::Tensor;
using kernels::TensorType;
using std::chrono::milliseconds;

size_t GlooCommunicator::indexOf(const Group &group) const {
  size_t index = std::find(group.begin(), group.end(), self) - group.begin();
  kernels::require(index < group.size(), "a rank calls a group that it is not in");
  return index;
}

/// Sends toIndex[i] (nothing: a header alone) to index i of the group and returns what the indices
/// in `expects` sent here, `share` elements each, of the input's dtype. The own part is passed on.
Result<std::vector<Tensor>> GlooCommunicator::exchange(const Exchange &call,
                                                       std::vector<Tensor> toIndex,
                                                       const std::vector<bool> &expects,
                                                       int64_t share) {
  if (hasFailed)
    return failure;
  const Group &group = call.group;
  size_t own = indexOf(group);
  Slots slots = slotsOf(group);
  Header header;
  header.group = hashOf(group);
  header.kind = int64_t(call.call.kind);
  header.reduce = int64_t(call.call.reduction.kind);
  header.factor = call.call.reduction.factor;
  header.root = call.call.root;
  setTensor(header, call.input);
  setPlace(header, call.place);
  std::string what = call.place + ", " + describe(call.call) +
                     (call.input ? " of " + toString(call.input.type()) : std::string());
  Arith arith = call.input ? arithOf(call.input) : Arith::Native;
  TensorType partType{call.input ? call.input.dtype() : kernels::DType::U8, {share}};
  size_t shareBytes = call.input ? size_t(share * wireWidth(partType.dtype, arith)) : 0;

  size_t n = group.size();
  std::vector<Header> headers(n);
  std::vector<Bytes> outgoing(n), incoming(n);
  std::vector<BufferPtr> headersOut(n), headersIn(n), contentsOut(n), contentsIn(n);
  Clock::time_point deadline = Clock::now() + options.timeout;
  size_t current = own;
  try {
    for (size_t i = 0; i < n; ++i) {
      if (i == own)
        continue;
      current = i;
      headersIn[i] = context->createUnboundBuffer(&headers[i], sizeof(Header));
      headersIn[i]->recv(int(group[i]), slots.header);
      headersOut[i] = context->createUnboundBuffer(&header, sizeof(Header));
      headersOut[i]->send(int(group[i]), slots.header);
      if (toIndex[i])
        outgoing[i] = encode(toIndex[i]);
      if (outgoing[i].empty())
        continue;
      contentsOut[i] = context->createUnboundBuffer(outgoing[i].data(), outgoing[i].size());
      contentsOut[i]->send(int(group[i]), slots.content);
    }
    for (size_t i = 0; i < n; ++i) {
      if (i == own)
        continue;
      current = i;
      auto arrived = [&](milliseconds limit) { headersIn[i]->waitRecv(limit); };
      if (Status status = wait(arrived, group[i], deadline, what); !status)
        return status.error();
      if (!sameCall(header, headers[i]))
        return fail({ErrorCode::RankFailed, rankName(self) + " at " + what + ": meets " +
                                                callOf(headers[i]) + " of " + tensorOf(headers[i]) +
                                                " of " + rankName(group[i]) + " at " +
                                                placeOf(headers[i])});
      if (!expects[i] || shareBytes == 0)
        continue;
      incoming[i].resize(shareBytes);
      contentsIn[i] = context->createUnboundBuffer(incoming[i].data(), shareBytes);
      contentsIn[i]->recv(int(group[i]), slots.content);
    }
  } catch (const std::exception &error) {
    return lost(group[current], what);
  }
  for (size_t i = 0; i < n; ++i) {
    for (BufferPtr *buffer : {&contentsIn[i], &headersOut[i], &contentsOut[i]}) {
      if (!*buffer)
        continue;
      auto done = [&](milliseconds limit) {
        buffer == &contentsIn[i] ? (*buffer)->waitRecv(limit) : (*buffer)->waitSend(limit);
      };
      if (Status status = wait(done, group[i], deadline, what); !status)
        return status.error();
    }
  }
  std::vector<Tensor> parts(n);
  for (size_t i = 0; i < n; ++i) {
    if (i == own)
      parts[i] = toIndex[i];
    else if (expects[i] && call.input)
      parts[i] = decode(partType, arith, incoming[i].data());
  }
  return parts;
}

/// Part j of the input goes to index j; what comes back is this rank's part of every input.
Result<std::vector<Tensor>> GlooCommunicator::exchangeParts(const Exchange &call,
                                                            const Tensor &input) {
  int64_t n = int64_t(call.group.size());
  kernels::require(input.numElements() % n == 0,
                   "the buffer of a collective is not cut into equal parts by its group");
  int64_t share = input.numElements() / n;
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < n; ++i)
    parts.push_back(cutFlat(input, i * share, share));
  return exchange(call, std::move(parts), std::vector<bool>(n, true), share);
}

/// `input`, flat, with zeros behind it.
static Tensor paddedTo(const Tensor &input, int64_t count) {
  if (input.numElements() == count)
    return input.reshaped({count});
  Tensor padding = Tensor::zeros({input.dtype(), {count - input.numElements()}}, arithOf(input));
  return joinFlat({input, padding});
}

RequestPtr GlooCommunicator::allReduce(const Group &group, Reduction reduction, const Tensor &input,
                                       const std::string &place) {
  size_t n = group.size();
  Exchange call{group, Call(reduction), input, place};
  // Small ones travel whole, in one round; of others each rank reduces its part (2 (n - 1) / n of
  // the bytes leave a rank, as with a ring) and passes it on. Either way sums are the same.
  constexpr int64_t smallElements = 4096;
  if (n == 1 || input.numElements() <= smallElements) {
    Result<std::vector<Tensor>> all = exchange(call, std::vector<Tensor>(n, input),
                                               std::vector<bool>(n, true), input.numElements());
    if (!all)
      return ended(all.error());
    for (Tensor &part : *all)
      part = part.reshaped(input.shape());
    return ended(reduce(reduction, *all));
  }
  int64_t share = (input.numElements() + int64_t(n) - 1) / int64_t(n);
  Result<std::vector<Tensor>> parts = exchangeParts(call, paddedTo(input, share * int64_t(n)));
  if (!parts)
    return ended(parts.error());
  Tensor reduced = reduce(reduction, *parts);
  Result<std::vector<Tensor>> all =
      exchange(call, std::vector<Tensor>(n, reduced), std::vector<bool>(n, true), share);
  if (!all)
    return ended(all.error());
  return ended(cutFlat(joinFlat(*all), 0, input.numElements()).reshaped(input.shape()));
}

RequestPtr GlooCommunicator::broadcast(const Group &group, int64_t root, const Tensor &input,
                                       const std::string &place) {
  size_t n = group.size();
  Exchange call{group, Call(CallKind::Broadcast, root), input, place};
  kernels::require(root >= 0 && root < int64_t(n), "the root of a broadcast is not in its group");
  bool isRoot = indexOf(group) == size_t(root);
  std::vector<bool> expects(n, false);
  expects[root] = true;
  Result<std::vector<Tensor>> parts = exchange(
      call, std::vector<Tensor>(n, isRoot ? input : Tensor()), expects, input.numElements());
  if (!parts)
    return ended(parts.error());
  return ended((*parts)[root].reshaped(input.shape()));
}

RequestPtr GlooCommunicator::allGather(const Group &group, const Tensor &input,
                                       const std::string &place) {
  size_t n = group.size();
  Exchange call{group, Call(CallKind::AllGather), input, place};
  Result<std::vector<Tensor>> parts = exchange(call, std::vector<Tensor>(n, input),
                                               std::vector<bool>(n, true), input.numElements());
  if (!parts)
    return ended(parts.error());
  return ended(joinFlat(*parts));
}

RequestPtr GlooCommunicator::reduceScatter(const Group &group, const Tensor &input,
                                           const std::string &place) {
  Exchange call{group, Call(CallKind::ReduceScatter), input, place};
  Result<std::vector<Tensor>> parts = exchangeParts(call, input);
  if (!parts)
    return ended(parts.error());
  return ended(reduce(ReduceKind::Sum, *parts));
}

RequestPtr GlooCommunicator::allToAll(const Group &group, const Tensor &input,
                                      const std::string &place) {
  Exchange call{group, Call(CallKind::AllToAll), input, place};
  Result<std::vector<Tensor>> parts = exchangeParts(call, input);
  if (!parts)
    return ended(parts.error());
  return ended(joinFlat(*parts));
}

RequestPtr GlooCommunicator::barrier(const Group &group, const std::string &place) {
  size_t n = group.size();
  Exchange call{group, Call(CallKind::Barrier), Tensor(), place};
  Result<std::vector<Tensor>> parts =
      exchange(call, std::vector<Tensor>(n), std::vector<bool>(n, false), 0);
  if (!parts)
    return ended(parts.error());
  return ended(Tensor());
}

} // namespace tbc::comm
