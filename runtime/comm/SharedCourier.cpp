//===- SharedCourier.cpp - A transport through shared memory -----------------===//

#include "runtime/comm/SharedCourier.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>

namespace tbc::comm {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

static Runs runOf(Header &header) {
  return {{reinterpret_cast<unsigned char *>(&header), int64_t(sizeof header)}};
}

SharedCourier::SharedCourier(const LocalLinks &links, const Group &group, int64_t self,
                             const Header &header, std::string what, milliseconds timeout,
                             Owner owner)
    : mine(header), what(std::move(what)), self(self), timeout(timeout), owner(std::move(owner)),
      peers(group.size()) {
  for (size_t i = 0; i < group.size(); ++i) {
    peers[i].rank = group[i];
    if (group[i] == self)
      continue;
    peers[i].link = links.at(group[i]).get();
    peers[i].out.portions.push_back(runOf(mine));
    peers[i].in.portions.push_back(runOf(peers[i].header));
  }
}

Status SharedCourier::send(size_t index, const Runs &from) {
  owner.sends(peers[index].rank, sizeBytes(from));
  peers[index].out.portions.push_back(from);
  return Status::ok();
}

Status SharedCourier::receive(size_t index, const Runs &into) {
  peers[index].in.portions.push_back(into);
  return Status::ok();
}

// The header counts as a portion.
Status SharedCourier::waitReceived(size_t index, int64_t number) {
  return waitUntil([&] { return peers[index].in.numDone >= number + 1; });
}

Status SharedCourier::waitSent(size_t index, int64_t number) {
  return waitUntil([&] { return peers[index].out.numDone >= number + 1; });
}

Status SharedCourier::finish() {
  return waitUntil([&] {
    return std::all_of(peers.begin(), peers.end(), [](const Peer &peer) {
      return !peer.link || (peer.in.portions.empty() && peer.out.portions.empty());
    });
  });
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

template <typename MoveFn> Result<bool> SharedCourier::Queue::advance(MoveFn move) {
  bool hasMoved = false;
  while (!portions.empty()) {
    const Run &first = portions.front()[run];
    int64_t moved = move(first.data + offset, first.bytes - offset);
    if (moved < 0)
      return Error{ErrorCode::RankFailed, "its memory makes no sense"};
    if (moved == 0)
      break;
    hasMoved = true;
    offset += moved;
    if (offset < first.bytes)
      continue;
    offset = 0;
    if (++run < portions.front().size())
      continue;
    run = 0;
    portions.pop_front();
    ++numDone;
  }
  return hasMoved;
}

/// Moves as many bytes as possible, and wakes waiting peers.
Result<bool> SharedCourier::progress() {
  bool hasMoved = false;
  for (Peer &peer : peers) {
    if (!peer.link)
      continue;
    LocalLink &link = *peer.link;
    Result<bool> sent = peer.out.advance([&](const unsigned char *data, int64_t count) {
      int64_t moved = link.out.write(data, count);
      if (moved > 0 && link.out.mustWakeReader())
        link.wake();
      return moved;
    });
    Result<bool> received = peer.in.advance([&](unsigned char *data, int64_t count) {
      int64_t moved = link.in.read(data, count);
      if (moved > 0 && link.in.mustWakeWriter())
        link.wake();
      return moved;
    });
    if (!received)
      return owner.lost(peer.rank, what + ", " + received.error().message);
    if (Status status = check(peer); !status)
      return status.error();
    hasMoved |= *sent || *received;
  }
  return hasMoved;
}

Status SharedCourier::check(Peer &peer) {
  if (peer.isChecked || peer.in.numDone == 0)
    return Status::ok();
  peer.isChecked = true;
  return sameCall(mine, peer.header)
             ? Status::ok()
             : Status(owner.fail(mismatch(self, what, peer.header, peer.rank)));
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

template <typename DoneFn> Status SharedCourier::waitUntil(DoneFn isDone) {
  Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    Result<bool> moved = progress();
    if (!moved)
      return moved.error();
    if (isDone())
      return Status::ok();
    if (*moved) {
      deadline = Clock::now() + timeout;
      continue;
    }
    if (Status status = sleep(deadline); !status)
      return status;
  }
}

/// Sleeps until another rank has moved bytes or is gone.
Status SharedCourier::sleep(Clock::time_point deadline) {
  std::vector<pollfd> waited;
  std::vector<Peer *> of;
  for (Peer &peer : peers) {
    bool reads = peer.link && !peer.in.portions.empty();
    bool writes = peer.link && !peer.out.portions.empty();
    if (!reads && !writes)
      continue;
    if (reads)
      peer.link->in.announceReaderSleep();
    if (writes)
      peer.link->out.announceWriterSleep();
    waited.push_back({peer.link->socket.get(), POLLIN, 0});
    of.push_back(&peer);
  }
  Result<bool> moved = progress();
  if (!moved)
    return moved.error();
  if (*moved)
    return Status::ok();
  // All bytes sent by a rank before it was gone have been read here.
  for (Peer *peer : of)
    if (peer->link->isGone)
      return owner.lost(peer->rank, what);
  owner.waitsFor(missing());
  auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  int count = poll(waited.data(), nfds_t(waited.size()), int(std::max<int64_t>(left.count(), 0)));
  if (count == 0)
    return owner.timedOut(missing(), what);
  for (size_t i = 0; count > 0 && i < waited.size(); ++i)
    if (waited[i].revents)
      of[i]->link->drain();
  return Status::ok();
}

/// Returns the ranks that have not done their part.
std::vector<int64_t> SharedCourier::missing() const {
  std::vector<int64_t> ranks;
  for (const Peer &peer : peers)
    if (peer.link && !(peer.in.portions.empty() && peer.out.portions.empty()))
      ranks.push_back(peer.rank);
  return ranks;
}

} // namespace tbc::comm
