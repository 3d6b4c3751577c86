//===- GlooCollectives.cpp - Collectives over TCP --------------------------===//

#include "runtime/comm/GlooCommunicator.h"
#include "runtime/comm/Reduce.h"
#include "runtime/comm/ReduceRuns.h"

namespace tbc::comm {

using kernels::Tensor;

std::pair<Header, std::string> GlooCommunicator::describeCall(const Calling &calling) {
  Header header;
  header.group = hashOf(calling.group);
  header.kind = int64_t(calling.call.kind);
  header.reduce = int64_t(calling.call.reduction.kind);
  header.factor = calling.call.reduction.factor;
  header.root = calling.call.root;
  setPlace(header, calling.place);
  std::string what = calling.place + ", " + describe(calling.call);
  if (calling.call.kind != CallKind::Barrier) {
    setElements(header, calling.type, calling.numElements);
    what += " of " + tensorOf(header);
  }
  return {header, what};
}

std::unique_ptr<SharedCourier>
GlooCommunicator::sharedCourier(const Group &group, const Header &header, const std::string &what) {
  SharedCourier::Owner owner{
      [this](Error error) { return fail(std::move(error)); },
      [this](int64_t peer, const std::string &place) { return lost(peer, place, true); },
      [this](const std::vector<int64_t> &missing, const std::string &place) {
        return timedOut(missing, place);
      },
      [this](std::vector<int64_t> ranks) {
        if (options.recorder)
          options.recorder->waitFor(std::move(ranks));
      },
      [this](int64_t peer, int64_t bytes) { countSent(peer, bytes); }};
  return std::make_unique<SharedCourier>(links, group, self, header, what, options.timeout,
                                         std::move(owner));
}

Status GlooCommunicator::run(const Calling &calling, const CourseFn &course) {
  size_t own = indexIn(calling.group, self);
  if (hasFailed)
    return failure;
  auto [header, what] = describeCall(calling);
  RecordedCall recorded(options.recorder, what);
  if (calling.group.size() > 1 && isLinked(calling.group)) {
    std::unique_ptr<SharedCourier> courier = sharedCourier(calling.group, header, what);
    Status status = course({*courier, own, calling.group.size()});
    return status ? courier->finish() : status;
  }
  GlooCourier courier(*this, calling.group, what);
  if (Status status = courier.meet(header); !status)
    return status;
  return course({courier, own, calling.group.size()});
}

/// Up to this size in bytes, an all_reduce is one round.
constexpr int64_t smallBytes = 1 << 14;

std::optional<HostShape> GlooCommunicator::shapeOf(const Group &group, const ElementType &type,
                                                   int64_t bytes) const {
  if (options.byHost == ByHost::Never || bytes <= smallBytes || hosts.empty())
    return std::nullopt;
  std::vector<int64_t> hostOfIndex;
  for (int64_t rank : group)
    hostOfIndex.push_back(hosts[size_t(rank)]);
  std::optional<HostShape> shape = hostShape(hostOfIndex);
  if (!shape || shape->numHosts < 2)
    return std::nullopt;
  return options.byHost == ByHost::Always || paysByHost(*shape, type) ? shape : std::nullopt;
}

/// Within hosts, it goes through memory if the ranks share it.
Status GlooCommunicator::allReduceByHost(const Calling &calling, const HostShape &shape,
                                         const Runs &input, const Runs &output) {
  size_t own = indexIn(calling.group, self);
  if (hasFailed)
    return failure;
  auto [header, what] = describeCall(calling);
  RecordedCall recorded(options.recorder, what);
  // All ranks meet first, so that mismatched calls are found before any wait for bytes.
  GlooCourier everybody(*this, calling.group, what);
  if (Status status = everybody.meet(header); !status)
    return status;
  size_t host = own / shape.numLocal, index = own % shape.numLocal;
  std::vector<size_t> neighbours, counterparts;
  Group ofHost;
  for (size_t i = 0; i < shape.numLocal; ++i) {
    neighbours.push_back(host * shape.numLocal + i);
    ofHost.push_back(calling.group[neighbours.back()]);
  }
  for (size_t h = 0; h < shape.numHosts; ++h)
    counterparts.push_back(h * shape.numLocal + index);
  SelectedCourier far(everybody, counterparts);
  Course across{far, host, shape.numHosts};
  auto reduce = [&](Courier &near) {
    return reduceByHost(shape, {near, index, shape.numLocal}, across, calling.call.reduction,
                        calling.type, input, output);
  };
  if (!isLinked(ofHost)) {
    SelectedCourier near(everybody, neighbours);
    return reduce(near);
  }
  std::unique_ptr<SharedCourier> near = sharedCourier(ofHost, header, what);
  Status status = reduce(*near);
  return status ? near->finish() : status;
}

//===----------------------------------------------------------------------===//
// On memory
//===----------------------------------------------------------------------===//

static int64_t sizeBytes(const std::vector<Runs> &parts) {
  int64_t bytes = 0;
  for (const Runs &part : parts)
    bytes += sizeBytes(part);
  return bytes;
}

static void copy(const Runs &from, const Runs &to) {
  Bytes packed(size_t(sizeBytes(from)));
  pack(from, packed.data());
  unpack(packed.data(), to);
}

Status GlooCommunicator::allReduceRuns(const Group &group, Reduction reduction,
                                       const ElementType &type, const Runs &input,
                                       const Runs &output, const std::string &place) {
  requireReducible(reduction, type.dtype);
  int64_t bytes = sizeBytes(input);
  Calling calling{group, Call(reduction), type, bytes / type.width(), place};
  if (std::optional<HostShape> shape = shapeOf(group, type, bytes))
    return allReduceByHost(calling, *shape, input, output);
  return run(calling, [&](const Course &course) {
    // Small inputs travel whole, in one round. Sums are the same either way.
    if (course.numRanks == 1 || bytes <= smallBytes)
      return reduceSmall(course, reduction, type, input, output);
    std::vector<Runs> results = equalParts(output, type, course.numRanks);
    return reduceParts(course, reduction, type, equalParts(input, type, course.numRanks),
                       results[course.own], results);
  });
}

Status GlooCommunicator::allGatherRuns(const Group &group, const ElementType &type,
                                       const Runs &input, const std::vector<Runs> &outputs,
                                       const std::string &place) {
  Calling calling{group, Call(CallKind::AllGather), type, sizeBytes(outputs) / type.width(), place};
  return run(calling, [&](const Course &course) {
    const Runs &own = outputs[course.own];
    bool isThere = own.empty() || (!input.empty() && own[0].data == input[0].data);
    if (!isThere)
      copy(input, own);
    return exchange(course, std::vector<Runs>(course.numRanks, input), outputs);
  });
}

Status GlooCommunicator::reduceScatterRuns(const Group &group, const ElementType &type,
                                           const std::vector<Runs> &inputs, const Runs &output,
                                           const std::string &place) {
  Calling calling{group, Call(CallKind::ReduceScatter), type, sizeBytes(inputs) / type.width(),
                  place};
  return run(calling, [&](const Course &course) {
    return reduceParts(course, ReduceKind::Sum, type, inputs, output, {});
  });
}

Status GlooCommunicator::allToAllRuns(const Group &group, const ElementType &type,
                                      const std::vector<Runs> &inputs,
                                      const std::vector<Runs> &outputs, const std::string &place) {
  Calling calling{group, Call(CallKind::AllToAll), type, sizeBytes(inputs) / type.width(), place};
  return run(calling, [&](const Course &course) {
    copy(inputs[course.own], outputs[course.own]);
    return exchange(course, inputs, outputs);
  });
}

//===----------------------------------------------------------------------===//
// On tensors
//===----------------------------------------------------------------------===//

namespace {

/// The encoded bytes of a communicated tensor.
struct Encoded {
  explicit Encoded(const Tensor &tensor)
      : type{tensor.dtype(), arithOf(tensor)}, bytes(encode(tensor)) {}
  Runs runs() { return parts(1)[0]; }
  std::vector<Runs> parts(size_t n) {
    kernels::require(bytes.size() / size_t(type.width()) % n == 0,
                     "the buffer of a collective is not cut into equal parts by its group");
    int64_t share = int64_t(bytes.size() / n);
    std::vector<Runs> list(n);
    for (size_t i = 0; i < n && share > 0; ++i)
      list[i] = {{bytes.data() + int64_t(i) * share, share}};
    return list;
  }
  Tensor decoded(const kernels::Shape &shape) const {
    return decode({type.dtype, shape}, type.arith, bytes.data());
  }
  ElementType type;
  Bytes bytes;
};

} // namespace

static RequestPtr endedWith(const Status &status, const Encoded &result,
                            const kernels::Shape &shape) {
  return status ? ended(result.decoded(shape)) : ended(status.error());
}

RequestPtr GlooCommunicator::allReduce(const Group &group, Reduction reduction, const Tensor &input,
                                       const std::string &place) {
  Encoded data(input);
  Status status = allReduceRuns(group, reduction, data.type, data.runs(), data.runs(), place);
  return endedWith(status, data, input.shape());
}

RequestPtr GlooCommunicator::broadcast(const Group &group, int64_t root, const Tensor &input,
                                       const std::string &place) {
  size_t n = group.size();
  kernels::require(root >= 0 && root < int64_t(n), "the root of a broadcast is not in its group");
  Encoded data(input);
  Calling calling{group, Call(CallKind::Broadcast, root), data.type, input.numElements(), place};
  Status status = run(calling, [&](const Course &course) {
    std::vector<Runs> toIndex(n), fromIndex(n);
    if (course.own == size_t(root))
      toIndex.assign(n, data.runs());
    else
      fromIndex[size_t(root)] = data.runs();
    return exchange(course, toIndex, fromIndex);
  });
  return endedWith(status, data, input.shape());
}

RequestPtr GlooCommunicator::allGather(const Group &group, const Tensor &input,
                                       const std::string &place) {
  int64_t n = int64_t(group.size());
  Encoded data(input), result = data;
  result.bytes.resize(data.bytes.size() * size_t(n));
  Status status = allGatherRuns(group, data.type, data.runs(), result.parts(size_t(n)), place);
  return endedWith(status, result, {n * input.numElements()});
}

RequestPtr GlooCommunicator::reduceScatter(const Group &group, const Tensor &input,
                                           const std::string &place) {
  size_t n = group.size();
  Encoded data(input), result = data;
  std::vector<Runs> inputs = data.parts(n);
  result.bytes.resize(data.bytes.size() / n);
  Status status = reduceScatterRuns(group, data.type, inputs, result.runs(), place);
  return endedWith(status, result, {input.numElements() / int64_t(n)});
}

RequestPtr GlooCommunicator::allToAll(const Group &group, const Tensor &input,
                                      const std::string &place) {
  Encoded data(input), result = data;
  Status status =
      allToAllRuns(group, data.type, data.parts(group.size()), result.parts(group.size()), place);
  return endedWith(status, result, {input.numElements()});
}

RequestPtr GlooCommunicator::barrier(const Group &group, const std::string &place) {
  Calling calling{group, Call(CallKind::Barrier), {}, 0, place};
  Status status = run(calling, [](const Course &) { return Status::ok(); });
  return status ? ended(Tensor()) : ended(status.error());
}

} // namespace tbc::comm
