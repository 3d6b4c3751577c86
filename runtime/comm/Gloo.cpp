//===- Gloo.cpp - Ranks as processes that talk over TCP --------------------===//

#include "runtime/comm/Gloo.h"
#include "runtime/abi/Sha256.h"
#include "runtime/comm/Call.h"
#include "runtime/comm/Reduce.h"
#include "runtime/comm/Wire.h"

#include <stdexcept>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace tbc::comm {

using kernels::Arith;
using kernels::Tensor;
using kernels::TensorType;
using std::chrono::milliseconds;

namespace {

using Bytes = std::vector<unsigned char>;
using Clock = std::chrono::steady_clock;
using BufferPtr = std::unique_ptr<gloo::transport::UnboundBuffer>;

std::string rankName(int64_t rank) { return "rank " + std::to_string(rank); }

//===----------------------------------------------------------------------===//
// What stands before every message
//===----------------------------------------------------------------------===//

/// Both ranks run on machines of one byte order and word size (all that tbc supports are
/// little-endian with 64 bits).
struct Header {
  uint64_t group = 0; // hashOf
  int64_t kind = 0;   // CallKind, or pointToPoint
  int64_t reduce = 0;
  double factor = 1;
  int64_t root = 0;
  int64_t channel = 0;
  int64_t dtype = -1; // -1: no tensor
  int64_t arith = 0;
  int64_t numElements = 0;
  int64_t numDims = 0;
  int64_t shape[16] = {}; // for messages of errors; a longer shape is cut
  char place[216] = {};
};
constexpr int64_t pointToPoint = 100;

void setTensor(Header &header, const Tensor &tensor) {
  if (!tensor)
    return;
  header.dtype = int64_t(tensor.dtype());
  header.arith = int64_t(arithOf(tensor));
  header.numElements = tensor.numElements();
  header.numDims = std::min<int64_t>(16, int64_t(tensor.shape().size()));
  std::copy_n(tensor.shape().begin(), header.numDims, header.shape);
}

void setPlace(Header &header, const std::string &place) {
  std::strncpy(header.place, place.c_str(), sizeof header.place - 1);
}

std::string placeOf(const Header &header) {
  return std::string(header.place, strnlen(header.place, sizeof header.place));
}

std::string tensorOf(const Header &header) {
  if (header.dtype < 0 || header.dtype > int64_t(kernels::DType::Bool))
    return "nothing";
  int64_t numDims = std::clamp<int64_t>(header.numDims, 0, 16);
  return toString(TensorType{kernels::DType(header.dtype),
                             kernels::Shape(header.shape, header.shape + numDims)});
}

std::string callOf(const Header &header) {
  if (header.kind == pointToPoint)
    return "send " + std::to_string(header.channel);
  Call call{CallKind(std::clamp<int64_t>(header.kind, 0, int64_t(CallKind::Barrier))), header.root};
  if (call.kind == CallKind::AllReduce)
    call.reduction = {ReduceKind(std::clamp<int64_t>(header.reduce, 0, numReduceKinds - 1)),
                      header.factor};
  return describe(call);
}

bool sameCall(const Header &a, const Header &b) {
  return a.group == b.group && a.kind == b.kind && a.reduce == b.reduce && a.factor == b.factor &&
         a.root == b.root && a.dtype == b.dtype && a.arith == b.arith &&
         a.numElements == b.numElements;
}

/// FNV-1a over the ranks of a group.
uint64_t hashOf(const Group &group) {
  uint64_t hash = 14695981039346656037ull;
  for (int64_t rank : group)
    for (int byte = 0; byte < 8; ++byte)
      hash = (hash ^ (uint64_t(rank) >> (8 * byte) & 0xff)) * 1099511628211ull;
  return hash;
}

/// Gloo keeps messages of one slot in order; headers and contents have a slot each, and so have
/// groups and lanes, so that nobody takes what is meant for another.
struct Slots {
  uint64_t header, content;
};
Slots slotsOf(const Group &group) {
  uint64_t base = hashOf(group) >> 2 << 1;
  return {base, base | 1};
}
Slots slotsOf(int lane) {
  uint64_t base = uint64_t(1) << 63 | uint64_t(uint32_t(lane)) << 1;
  return {base, base | 1};
}

//===----------------------------------------------------------------------===//
// The communicator
//===----------------------------------------------------------------------===//

/// Keys and values as Gloo wants to see them: errors are exceptions.
class StoreForGloo : public gloo::rendezvous::Store {
public:
  StoreForGloo(comm::Store &store, milliseconds timeout) : store(store), timeout(timeout) {}
  void set(const std::string &key, const std::vector<char> &data) override {
    check(store.claim("gloo/" + key, std::string(data.begin(), data.end())));
  }
  std::vector<char> get(const std::string &key) override {
    std::string value = check(store.get("gloo/" + key, timeout));
    return std::vector<char>(value.begin(), value.end());
  }
  void wait(const std::vector<std::string> &keys) override { wait(keys, timeout); }
  void wait(const std::vector<std::string> &keys, const milliseconds &limit) override {
    for (const std::string &key : keys)
      check(store.get("gloo/" + key, limit));
  }
  Error error{ErrorCode::RankFailed, ""};

private:
  std::string check(const Result<std::string> &result) {
    if (result)
      return *result;
    error = result.error();
    throw std::runtime_error(error.message);
  }
  comm::Store &store;
  milliseconds timeout;
};

/// A message on its way.
struct Outgoing {
  Header header;
  Bytes content;
  int64_t to = 0;
  // Before their memory goes, they go.
  BufferPtr headerBuffer, contentBuffer;
};

/// A message that was asked for.
struct Incoming {
  int64_t from = 0;
  Tag tag{0};
  TensorType type;
  std::string place;
  bool isDone = false;
  Result<Tensor> result = Tensor();
};

class GlooCommunicator : public Communicator {
public:
  GlooCommunicator(int64_t rank, int64_t numRanks, const GlooOptions &options)
      : self(rank), size(numRanks), options(options) {}
  ~GlooCommunicator() override;

  Status connect(Store &store);

  int64_t rank() const override { return self; }
  int64_t numRanks() const override { return size; }
  RequestPtr allReduce(const Group &group, Reduction reduction, const Tensor &input,
                       const std::string &place) override;
  RequestPtr broadcast(const Group &group, int64_t root, const Tensor &input,
                       const std::string &place) override;
  RequestPtr allGather(const Group &group, const Tensor &input, const std::string &place) override;
  RequestPtr reduceScatter(const Group &group, const Tensor &input,
                           const std::string &place) override;
  RequestPtr allToAll(const Group &group, const Tensor &input, const std::string &place) override;
  RequestPtr barrier(const Group &group, const std::string &place) override;
  RequestPtr send(int64_t to, Tag tag, const Tensor &input, const std::string &place) override;
  RequestPtr recv(int64_t from, Tag tag, const TensorType &type, const std::string &place) override;

  /// Completes what was asked for in the lane of `incoming`, up to it.
  Result<Tensor> complete(Incoming &incoming);

private:
  /// What goes to and comes from each index of a group; the own index is left out.
  struct Exchange {
    const Group &group;
    Call call;
    Tensor input; // what the call is about, for its header
    std::string place;
  };
  Result<std::vector<Tensor>> exchange(const Exchange &call, std::vector<Tensor> toIndex,
                                       const std::vector<bool> &expects, int64_t share);
  Result<std::vector<Tensor>> exchangeParts(const Exchange &call, const Tensor &input);
  Result<Tensor> receive(const Incoming &incoming);
  size_t indexOf(const Group &group) const;
  Status handshake(const std::string &nonce);

  template <typename WaitFn>
  Status wait(WaitFn waitFn, int64_t peer, Clock::time_point deadline, const std::string &what);
  Error fail(Error error);
  void reap();

  const int64_t self, size;
  const GlooOptions options;
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::map<std::pair<int64_t, int>, std::deque<std::shared_ptr<Incoming>>> mailboxes;
  std::map<int, std::deque<std::pair<Header, Tensor>>> ownMessages; // by lane
  bool hasFailed = false;
  Error failure;

  // Sends are waited for in the background, so that their memory is given back.
  std::thread reaper;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Outgoing>> underWay;
  bool isClosing = false;
};

class RecvRequest : public Request {
public:
  RecvRequest(GlooCommunicator &communicator, std::shared_ptr<Incoming> incoming)
      : communicator(communicator), incoming(std::move(incoming)) {}
  Result<Tensor> wait() override { return communicator.complete(*incoming); }

private:
  GlooCommunicator &communicator;
  std::shared_ptr<Incoming> incoming;
};

RequestPtr ended(Result<Tensor> result) {
  return std::make_unique<EndedRequest>(std::move(result));
}

//===----------------------------------------------------------------------===//
// Connecting
//===----------------------------------------------------------------------===//

Status GlooCommunicator::connect(Store &store) {
  // A peer that is gone must be an error of write, not the end of this process.
  std::signal(SIGPIPE, SIG_IGN);
  Result<std::string> nonce =
      store.claim("gloo/nonce", sha256Hex(std::to_string(self) + "/" +
                                          std::to_string(Clock::now().time_since_epoch().count())));
  if (!nonce)
    return nonce.error();
  StoreForGloo adapter(store, options.timeout);
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.host;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    context = std::make_shared<gloo::rendezvous::Context>(int(self), int(size));
    context->setTimeout(options.timeout);
    context->connectFullMesh(adapter, device);
  } catch (const std::exception &error) {
    if (!adapter.error.message.empty())
      return adapter.error;
    return Error{ErrorCode::RankFailed, rankName(self) + " cannot connect to the others from " +
                                            options.host + ": " + error.what()};
  }
  reaper = std::thread([this] { reap(); });
  return handshake(*nonce);
}

/// Both ends of every connection prove that they know the token, and who they are.
Status GlooCommunicator::handshake(const std::string &nonce) {
  auto proof = [&](int64_t from, int64_t to) {
    return hmacSha256Hex(options.token, "tbc pair " + std::to_string(from) + " " +
                                            std::to_string(to) + " " + nonce);
  };
  Group all;
  std::vector<Tensor> proofs;
  for (int64_t peer = 0; peer < size; ++peer) {
    all.push_back(peer);
    std::string text = proof(self, peer);
    proofs.push_back(Tensor::fromInts({kernels::DType::U8, {int64_t(text.size())}},
                                      std::vector<int64_t>(text.begin(), text.end())));
  }
  Exchange call{all, Call(CallKind::AllToAll), proofs[0], "start"};
  Result<std::vector<Tensor>> answers =
      exchange(call, proofs, std::vector<bool>(size, true), proofs[0].numElements());
  if (!answers)
    return answers.error();
  for (int64_t peer = 0; peer < size; ++peer) {
    const std::vector<int64_t> &answer = (*answers)[peer].data<int64_t>();
    std::string text(answer.begin(), answer.end());
    if (peer != self && !equalInConstantTime(text, proof(peer, self)))
      return fail({ErrorCode::RankFailed, rankName(peer) + " does not know the token of this job"});
  }
  return Status::ok();
}

GlooCommunicator::~GlooCommunicator() {
  {
    std::unique_lock<std::mutex> lock(mutex);
    if (!hasFailed)
      changed.wait_for(lock, options.timeout, [&] { return underWay.empty(); });
    isClosing = true;
    changed.notify_all();
    // The one that the reaper waits for fails when connections close.
    if (context && !underWay.empty() && underWay.front()) {
      for (BufferPtr *buffer : {&underWay.front()->headerBuffer, &underWay.front()->contentBuffer})
        if (*buffer)
          (*buffer)->abortWaitSend();
    }
  }
  if (reaper.joinable())
    reaper.join();
  underWay.clear();
}

void GlooCommunicator::reap() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return isClosing || !underWay.empty(); });
    if (isClosing)
      return;
    Outgoing *front = underWay.front().get();
    lock.unlock();
    bool isSent = true;
    try {
      // As long as it takes: a receiver may be busy for longer than a wait for it may take.
      for (BufferPtr *buffer : {&front->headerBuffer, &front->contentBuffer})
        if (*buffer && isSent)
          isSent = (*buffer)->waitSend(std::chrono::hours(24));
    } catch (const std::exception &) {
      isSent = false; // the connection is gone: who next waits for this peer finds out and says so
    }
    lock.lock();
    if (!isSent && isClosing)
      return;
    underWay.pop_front();
    changed.notify_all();
  }
}

//===----------------------------------------------------------------------===//
// Waiting and failing
//===----------------------------------------------------------------------===//

Error GlooCommunicator::fail(Error error) {
  if (!hasFailed) {
    hasFailed = true;
    failure = std::move(error);
  }
  return failure;
}

/// waitFn(limit) waits for something that `peer` must do.
template <typename WaitFn>
Status GlooCommunicator::wait(WaitFn waitFn, int64_t peer, Clock::time_point deadline,
                              const std::string &what) {
  auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  try {
    waitFn(std::max(left, milliseconds(1)));
    return Status::ok();
  } catch (const std::exception &error) {
    std::string where = rankName(self) + " at " + what + ": ";
    if (Clock::now() + milliseconds(2) >= deadline) // Gloo waits whole milliseconds
      return fail({ErrorCode::HangDetected, where + "no answer from " + rankName(peer) + " for " +
                                                std::to_string(options.timeout.count()) + " ms"});
    return fail({ErrorCode::RankFailed, where + "the connection to " + rankName(peer) +
                                            " is gone; it has failed or was killed"});
  }
}

size_t GlooCommunicator::indexOf(const Group &group) const {
  size_t index = std::find(group.begin(), group.end(), self) - group.begin();
  kernels::require(index < group.size(), "a rank calls a group that it is not in");
  return index;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

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
    return fail({ErrorCode::RankFailed, rankName(self) + " at " + what + ": the connection to " +
                                            rankName(group[current]) +
                                            " is gone; it has failed or was killed"});
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

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

RequestPtr GlooCommunicator::send(int64_t to, Tag tag, const Tensor &input,
                                  const std::string &place) {
  if (hasFailed)
    return ended(failure);
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->to = to;
  outgoing->header.kind = pointToPoint;
  outgoing->header.channel = tag.channel;
  setTensor(outgoing->header, input);
  setPlace(outgoing->header, place);
  if (to == self) {
    ownMessages[tag.lane].emplace_back(outgoing->header, input);
    return ended(Tensor());
  }
  outgoing->content = encode(input);
  Slots slots = slotsOf(tag.lane);
  try {
    outgoing->headerBuffer = context->createUnboundBuffer(&outgoing->header, sizeof(Header));
    outgoing->headerBuffer->send(int(to), slots.header);
    if (!outgoing->content.empty()) {
      outgoing->contentBuffer =
          context->createUnboundBuffer(outgoing->content.data(), outgoing->content.size());
      outgoing->contentBuffer->send(int(to), slots.content);
    }
  } catch (const std::exception &error) {
    return ended(fail({ErrorCode::RankFailed, rankName(self) + " at " + place +
                                                  ", send: the connection to " + rankName(to) +
                                                  " is gone; it has failed or was killed"}));
  }
  std::unique_lock<std::mutex> lock(mutex);
  underWay.push_back(std::move(outgoing));
  changed.notify_all();
  return ended(Tensor());
}

RequestPtr GlooCommunicator::recv(int64_t from, Tag tag, const TensorType &type,
                                  const std::string &place) {
  auto incoming = std::make_shared<Incoming>();
  incoming->from = from;
  incoming->tag = tag;
  incoming->type = type;
  incoming->place = place;
  mailboxes[{from, tag.lane}].push_back(incoming);
  return std::make_unique<RecvRequest>(*this, incoming);
}

Result<Tensor> GlooCommunicator::complete(Incoming &incoming) {
  // Messages of a lane come in the order in which they were asked for, whoever waits first.
  std::deque<std::shared_ptr<Incoming>> &mailbox = mailboxes[{incoming.from, incoming.tag.lane}];
  while (!incoming.isDone) {
    std::shared_ptr<Incoming> first = mailbox.front();
    mailbox.pop_front();
    first->result = receive(*first);
    first->isDone = true;
  }
  return std::move(incoming.result);
}

Result<Tensor> GlooCommunicator::receive(const Incoming &incoming) {
  if (hasFailed)
    return failure;
  std::string what = incoming.place + ", recv " + std::to_string(incoming.tag.channel) + " of " +
                     toString(incoming.type);
  Clock::time_point deadline = Clock::now() + options.timeout;
  Header header;
  Tensor own;
  Slots slots = slotsOf(incoming.tag.lane);
  if (incoming.from == self) {
    auto &messages = ownMessages[incoming.tag.lane];
    if (messages.empty())
      return fail({ErrorCode::HangDetected,
                   rankName(self) + " at " + what + ": it waits for a message of its own"});
    std::tie(header, own) = std::move(messages.front());
    messages.pop_front();
  } else {
    BufferPtr buffer = context->createUnboundBuffer(&header, sizeof header);
    auto arrived = [&](milliseconds limit) {
      buffer->recv(int(incoming.from), slots.header);
      buffer->waitRecv(limit);
    };
    if (Status status = wait(arrived, incoming.from, deadline, what); !status)
      return status.error();
  }
  if (header.kind != pointToPoint || header.channel != incoming.tag.channel ||
      tensorOf(header) != toString(incoming.type) || header.arith < 0 ||
      header.arith > int64_t(Arith::Residue61))
    return fail({ErrorCode::RankFailed, rankName(self) + " at " + what + ": meets " +
                                            callOf(header) + " of " + tensorOf(header) + " of " +
                                            rankName(incoming.from) + " at " + placeOf(header)});
  if (own)
    return own;
  Arith arith = Arith(header.arith);
  Bytes content(kernels::numElements(incoming.type.shape) * wireWidth(incoming.type.dtype, arith));
  if (!content.empty()) {
    BufferPtr buffer = context->createUnboundBuffer(content.data(), content.size());
    auto arrived = [&](milliseconds limit) {
      buffer->recv(int(incoming.from), slots.content);
      buffer->waitRecv(limit);
    };
    if (Status status = wait(arrived, incoming.from, deadline, what); !status)
      return status.error();
  }
  return decode(incoming.type, arith, content.data());
}

} // namespace

Result<std::unique_ptr<Communicator>> connectGloo(int64_t rank, int64_t numRanks, Store &store,
                                                  const GlooOptions &options) {
  auto communicator = std::make_unique<GlooCommunicator>(rank, numRanks, options);
  if (Status status = communicator->connect(store); !status)
    return status.error();
  return std::unique_ptr<Communicator>(std::move(communicator));
}

} // namespace tbc::comm
