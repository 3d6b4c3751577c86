//===- GlooMessages.cpp - Sends and receives over TCP ----------------------===//

#include "runtime/comm/GlooCommunicator.h"

#include <cstring>

namespace tbc::comm {

using kernels::Arith;
using kernels::Tensor;
using kernels::TensorType;
using std::chrono::milliseconds;

namespace {

class RecvRequest : public Request {
public:
  RecvRequest(GlooCommunicator &communicator, std::shared_ptr<Incoming> incoming)
      : communicator(communicator), incoming(std::move(incoming)) {}
  Result<Tensor> wait() override {
    if (Status status = communicator.complete(*incoming); !status)
      return status.error();
    return decode(incoming->type, incoming->arith, incoming->content.data());
  }

private:
  GlooCommunicator &communicator;
  std::shared_ptr<Incoming> incoming;
};

} // namespace

//===----------------------------------------------------------------------===//
// Sends
//===----------------------------------------------------------------------===//

RequestPtr GlooCommunicator::send(int64_t to, Tag tag, const Tensor &input,
                                  const std::string &place) {
  auto outgoing = std::make_unique<Outgoing>();
  setTensor(outgoing->header, input.type(), arithOf(input));
  outgoing->content = encode(input);
  Status status = post(to, tag, std::move(outgoing), place);
  return status ? ended(Tensor()) : ended(status.error());
}

Status GlooCommunicator::sendBytes(int64_t to, Tag tag, const TensorType &type, Arith arith,
                                   const unsigned char *from, const std::string &place) {
  auto outgoing = std::make_unique<Outgoing>();
  setTensor(outgoing->header, type, arith);
  int64_t bytes = kernels::numElements(type.shape) * wireWidth(type.dtype, arith);
  outgoing->content.assign(from, from + bytes);
  return post(to, tag, std::move(outgoing), place);
}

Status GlooCommunicator::post(int64_t to, Tag tag, std::unique_ptr<Outgoing> outgoing,
                              const std::string &place) {
  if (hasFailed)
    return failure;
  outgoing->to = to;
  outgoing->header.kind = pointToPoint;
  outgoing->header.channel = tag.channel;
  setPlace(outgoing->header, place);
  RecordedCall recorded(options.recorder,
                        place + ", send " + std::to_string(tag.channel) + " to " + rankName(to));
  if (to != self)
    countSent(to, int64_t(outgoing->content.size()));
  if (to == self) {
    ownMessages[tag.lane].push_back(std::move(outgoing));
    return Status::ok();
  }
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
    return lost(to, place + ", send");
  }
  std::unique_lock<std::mutex> lock(mutex);
  underWay.push_back(std::move(outgoing));
  changed.notify_all();
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Receives
//===----------------------------------------------------------------------===//

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

Status GlooCommunicator::recvBytes(int64_t from, Tag tag, const TensorType &type, Arith arith,
                                   unsigned char *into, const std::string &place) {
  auto incoming = std::make_shared<Incoming>();
  incoming->from = from;
  incoming->tag = tag;
  incoming->type = type;
  incoming->place = place;
  incoming->into = into;
  incoming->arith = arith;
  mailboxes[{from, tag.lane}].push_back(incoming);
  return complete(*incoming);
}

Status GlooCommunicator::complete(Incoming &incoming) {
  // Messages of a lane are received in the order of their requests, even if a later one is waited
  // for first.
  std::deque<std::shared_ptr<Incoming>> &mailbox = mailboxes[{incoming.from, incoming.tag.lane}];
  while (!incoming.isDone) {
    std::shared_ptr<Incoming> first = mailbox.front();
    mailbox.pop_front();
    first->status = receive(*first);
    first->isDone = true;
  }
  return incoming.status;
}

Status GlooCommunicator::receive(Incoming &incoming) {
  if (hasFailed)
    return failure;
  std::string what = incoming.place + ", recv " + std::to_string(incoming.tag.channel) + " of " +
                     toString(incoming.type);
  RecordedCall recorded(options.recorder, what);
  Clock::time_point deadline = Clock::now() + options.timeout;
  Slots slots = slotsOf(incoming.tag.lane);
  std::unique_ptr<Outgoing> own;
  Header header;
  auto fetch = [&](void *into, size_t bytes, uint64_t slot) {
    BufferPtr buffer = context->createUnboundBuffer(into, bytes);
    auto arrived = [&](milliseconds limit) {
      buffer->recv(int(incoming.from), slot);
      buffer->waitRecv(limit);
    };
    return wait(arrived, incoming.from, deadline, what);
  };
  if (incoming.from == self) {
    auto &messages = ownMessages[incoming.tag.lane];
    if (messages.empty())
      return fail({ErrorCode::HangDetected,
                   rankName(self) + " at " + what + ": it waits for a message of its own"});
    own = std::move(messages.front());
    messages.pop_front();
    header = own->header;
  } else if (Status status = fetch(&header, sizeof header, slots.header); !status) {
    return status;
  }
  bool isArith = header.arith >= 0 && header.arith < kernels::numAriths;
  // Received memory must have the sender's arithmetic. For integers all arithmetics are the same.
  bool fits = !incoming.into || header.arith == int64_t(incoming.arith) ||
              !kernels::isFloat(incoming.type.dtype);
  if (header.kind != pointToPoint || header.channel != incoming.tag.channel ||
      tensorOf(header) != toString(incoming.type) || !isArith || !fits)
    return fail(mismatch(self, what, header, incoming.from));
  incoming.arith = Arith(header.arith);
  size_t bytes = size_t(kernels::numElements(incoming.type.shape) *
                        wireWidth(incoming.type.dtype, incoming.arith));
  if (bytes == 0)
    return Status::ok();
  if (!incoming.into)
    incoming.content.resize(bytes);
  unsigned char *into = incoming.into ? incoming.into : incoming.content.data();
  if (own) {
    std::memcpy(into, own->content.data(), bytes);
    return Status::ok();
  }
  return fetch(into, bytes, slots.content);
}

} // namespace tbc::comm
