//===- GlooMessages.cpp - Sends and receives over TCP ----------------------===//

#include "runtime/comm/GlooCommunicator.h"

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
  Result<Tensor> wait() override { return communicator.complete(*incoming); }

private:
  GlooCommunicator &communicator;
  std::shared_ptr<Incoming> incoming;
};

} // namespace

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
    return ended(lost(to, place + ", send"));
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

} // namespace tbc::comm
