//===- GlooCourier.cpp - The bytes of a collective over TCP -----------------===//

#include "runtime/comm/GlooCommunicator.h"

namespace tbc::comm {

using std::chrono::milliseconds;

Status GlooCourier::meet(const Header &header) {
  Header mine = header;
  std::vector<Header> headers(group.size());
  std::vector<BufferPtr> headersOut(group.size()), headersIn(group.size());
  Clock::time_point deadline = Clock::now() + owner.options.timeout;
  size_t current = 0;
  try {
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i] == owner.self)
        continue;
      current = i;
      headersIn[i] = owner.context->createUnboundBuffer(&headers[i], sizeof(Header));
      headersIn[i]->recv(int(group[i]), slots.header);
      headersOut[i] = owner.context->createUnboundBuffer(&mine, sizeof(Header));
      headersOut[i]->send(int(group[i]), slots.header);
    }
  } catch (const std::exception &error) {
    return owner.lost(group[current], what);
  }
  for (size_t i = 0; i < group.size(); ++i) {
    if (!headersIn[i])
      continue;
    auto arrived = [&](milliseconds limit) { headersIn[i]->waitRecv(limit); };
    if (Status status = owner.wait(arrived, group[i], deadline, what); !status)
      return status;
    if (!sameCall(mine, headers[i]))
      return owner.fail(mismatch(owner.self, what, headers[i], group[i]));
  }
  for (size_t i = 0; i < group.size(); ++i) {
    if (!headersOut[i])
      continue;
    auto left = [&](milliseconds limit) { headersOut[i]->waitSend(limit); };
    if (Status status = owner.wait(left, group[i], deadline, what); !status)
      return status;
  }
  return Status::ok();
}

Status GlooCourier::send(size_t index, const Runs &from) {
  Portion portion;
  Run run = from[0];
  if (from.size() > 1) {
    portion.packed.resize(size_t(sizeBytes(from)));
    pack(from, portion.packed.data());
    run = {portion.packed.data(), int64_t(portion.packed.size())};
  }
  try {
    portion.buffer = owner.context->createUnboundBuffer(run.data, size_t(run.bytes));
    portion.buffer->send(int(group[index]), slots.content);
  } catch (const std::exception &error) {
    return owner.lost(group[index], what);
  }
  owner.countSent(group[index], run.bytes);
  peers[index].sent.push_back(std::move(portion));
  ++peers[index].numSent;
  return Status::ok();
}

Status GlooCourier::receive(size_t index, const Runs &into) {
  Portion portion;
  Run run = into[0];
  if (into.size() > 1) {
    portion.into = into;
    portion.packed.resize(size_t(sizeBytes(into)));
    run = {portion.packed.data(), int64_t(portion.packed.size())};
  }
  try {
    portion.buffer = owner.context->createUnboundBuffer(run.data, size_t(run.bytes));
    portion.buffer->recv(int(group[index]), slots.content);
  } catch (const std::exception &error) {
    return owner.lost(group[index], what);
  }
  peers[index].received.push_back(std::move(portion));
  ++peers[index].numReceived;
  return Status::ok();
}

Status GlooCourier::waitReceived(size_t index, int64_t number) {
  Peer &peer = peers[index];
  while (peer.numReceived - int64_t(peer.received.size()) < number) {
    Portion &first = peer.received.front();
    auto arrived = [&](milliseconds limit) { first.buffer->waitRecv(limit); };
    Clock::time_point deadline = Clock::now() + owner.options.timeout;
    if (Status status = owner.wait(arrived, group[index], deadline, what); !status)
      return status;
    if (!first.into.empty())
      unpack(first.packed.data(), first.into);
    peer.received.pop_front();
  }
  return Status::ok();
}

Status GlooCourier::waitSent(size_t index, int64_t number) {
  Peer &peer = peers[index];
  while (peer.numSent - int64_t(peer.sent.size()) < number) {
    Portion &first = peer.sent.front();
    auto left = [&](milliseconds limit) { first.buffer->waitSend(limit); };
    Clock::time_point deadline = Clock::now() + owner.options.timeout;
    if (Status status = owner.wait(left, group[index], deadline, what); !status)
      return status;
    peer.sent.pop_front();
  }
  return Status::ok();
}

} // namespace tbc::comm
