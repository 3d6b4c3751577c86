//===- SimulatedWorld.cpp - Ranks as threads of one process ----------------===//

#include "runtime/comm/SimulatedWorld.h"
#include "runtime/comm/Reduce.h"

#include <algorithm>
#include <cassert>

namespace tbc::comm {

using kernels::Tensor;
using Lock = std::unique_lock<std::mutex>;

/// One rank's view. All calls block, so every request is finished when it is returned.
class SimulatedWorld::Endpoint : public Communicator {
public:
  Endpoint(SimulatedWorld &world, int64_t rank) : world(world), self(rank) {}

  int64_t rank() const override { return self; }
  int64_t numRanks() const override { return static_cast<int64_t>(world.ranks.size()); }

  RequestPtr allReduce(const Group &group, Reduction reduction, const Tensor &input,
                       const std::string &place) override {
    return meet(group, Call(reduction), input, place);
  }
  RequestPtr broadcast(const Group &group, int64_t root, const Tensor &input,
                       const std::string &place) override {
    return meet(group, Call(CallKind::Broadcast, root), input, place);
  }
  RequestPtr allGather(const Group &group, const Tensor &input, const std::string &place) override {
    return meet(group, Call(CallKind::AllGather), input, place);
  }
  RequestPtr reduceScatter(const Group &group, const Tensor &input,
                           const std::string &place) override {
    return meet(group, Call(CallKind::ReduceScatter), input, place);
  }
  RequestPtr allToAll(const Group &group, const Tensor &input, const std::string &place) override {
    return meet(group, Call(CallKind::AllToAll), input, place);
  }
  RequestPtr barrier(const Group &group, const std::string &place) override {
    return meet(group, Call(CallKind::Barrier), Tensor(), place);
  }
  RequestPtr send(int64_t to, Tag tag, const Tensor &input, const std::string &place) override {
    world.deliver(self, to, tag, input, place);
    return std::make_unique<EndedRequest>(Tensor());
  }
  RequestPtr recv(int64_t from, Tag tag, const kernels::TensorType &type,
                  const std::string &place) override {
    return std::make_unique<EndedRequest>(world.receive(self, from, tag, type, place));
  }

private:
  RequestPtr meet(const Group &group, const Call &call, const Tensor &input,
                  const std::string &place) {
    return std::make_unique<EndedRequest>(world.meet(self, group, call, input, place));
  }

  SimulatedWorld &world;
  int64_t self;
};

SimulatedWorld::SimulatedWorld(int64_t numRanks, std::chrono::milliseconds timeout)
    : timeout(timeout), ranks(numRanks) {
  for (int64_t rank = 0; rank < numRanks; ++rank)
    endpoints.push_back(std::make_unique<Endpoint>(*this, rank));
}

SimulatedWorld::~SimulatedWorld() = default;

Communicator &SimulatedWorld::communicator(int64_t rank) { return *endpoints[rank]; }

static std::string rankName(int64_t rank) { return "rank " + std::to_string(rank); }

static std::string typeOf(const Tensor &tensor) {
  return tensor ? toString(tensor.type()) : "nothing";
}

//===----------------------------------------------------------------------===//
// Failure
//===----------------------------------------------------------------------===//

void SimulatedWorld::setFailure(Error error) {
  if (!hasFailed) {
    hasFailed = true;
    failure = std::move(error);
  }
  changed.notify_all();
}

void SimulatedWorld::fail(int64_t rank, const Error &error) {
  Lock lock(mutex);
  ranks[rank].activity = Activity::Finished;
  setFailure({error.code, rankName(rank) + ": " + error.message});
}

void SimulatedWorld::finish(int64_t rank) {
  Lock lock(mutex);
  ranks[rank].activity = Activity::Finished;
  if (isStuck())
    setFailure({ErrorCode::HangDetected, "no rank can go on: " + describeWaits()});
}

Status SimulatedWorld::status() const {
  Lock lock(mutex);
  return hasFailed ? Status(failure) : Status::ok();
}

Error SimulatedWorld::stopped(int64_t rank) const {
  return {failure.code,
          rankName(rank) + " stopped at " + ranks[rank].place + ": " + failure.message};
}

bool SimulatedWorld::isStuck() const {
  bool anyWaits = false;
  for (const RankState &state : ranks) {
    if (state.activity == Activity::Running)
      return false;
    anyWaits |= state.activity == Activity::Waiting;
  }
  return anyWaits && !hasFailed;
}

std::string SimulatedWorld::describeRank(int64_t rank) const {
  const RankState &state = ranks[rank];
  std::string text = rankName(rank);
  if (state.activity == Activity::Finished)
    return text + " has finished";
  if (state.activity == Activity::Running)
    return text +
           (state.place.empty() ? " has made no call yet" : " computes after " + state.place);
  text += " waits at " + state.place + " for ";
  if (!state.meeting)
    return text + "a message from " + rankName(state.from);
  const char *separator = "";
  for (size_t i = 0; i < state.group->size(); ++i) {
    if (!state.meeting->here[i]) {
      text += separator + rankName((*state.group)[i]);
      separator = " and ";
    }
  }
  return text;
}

std::string SimulatedWorld::describeWaits() const {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    text += (rank ? "; " : "") + describeRank(int64_t(rank));
  return text;
}

//===----------------------------------------------------------------------===//
// Meetings and messages
//===----------------------------------------------------------------------===//

template <typename ReadyFn>
Status SimulatedWorld::waitUntil(Lock &lock, int64_t rank, ReadyFn isReady) {
  if (isReady() && !hasFailed)
    return Status::ok();
  // A rank is set running by the call that makes it ready. So a ready rank that has not woken up
  // yet does not count as stuck.
  ranks[rank].activity = Activity::Waiting;
  if (isStuck())
    setFailure({ErrorCode::HangDetected, "no rank can go on: " + describeWaits()});
  auto deadline = std::chrono::steady_clock::now() + timeout;
  bool inTime = changed.wait_until(lock, deadline, [&] { return hasFailed || isReady(); });
  if (!inTime)
    setFailure({ErrorCode::HangDetected,
                "no answer for " + std::to_string(timeout.count()) + " ms: " + describeWaits()});
  ranks[rank].activity = Activity::Running;
  return hasFailed ? Status(stopped(rank)) : Status::ok();
}

std::string SimulatedWorld::whyMismatch(const Meeting &meeting, const Group &group,
                                        const Call &call, const Tensor &input) const {
  size_t first = std::find(meeting.here.begin(), meeting.here.end(), true) - meeting.here.begin();
  const Tensor &theirs = meeting.inputs[first];
  bool sameType =
      bool(theirs) == bool(input) &&
      (!input || (theirs.dtype() == input.dtype() && theirs.numElements() == input.numElements()));
  if (meeting.call == call && sameType)
    return "";
  return describe(call) + " of " + typeOf(input) + " meets " + describe(meeting.call) + " of " +
         typeOf(theirs) + " of " + rankName(group[first]) + " at " + meeting.places[first];
}

/// Returns the elements of one of n equal parts.
static int64_t shareOf(const Tensor &tensor, size_t n) {
  kernels::require(tensor.numElements() % int64_t(n) == 0,
                   "the buffer of a collective is not cut into equal parts by its group");
  return tensor.numElements() / int64_t(n);
}

void SimulatedWorld::complete(Meeting &meeting, const Group &group) {
  size_t n = group.size();
  switch (meeting.call.kind) {
  case CallKind::AllReduce:
    meeting.results.assign(n, reduce(meeting.call.reduction, meeting.inputs));
    break;
  case CallKind::Broadcast:
    meeting.results.assign(n, meeting.inputs[meeting.call.root]);
    break;
  case CallKind::AllGather:
    meeting.results.assign(n, joinFlat(meeting.inputs));
    break;
  case CallKind::ReduceScatter: {
    Tensor sum = reduce(ReduceKind::Sum, meeting.inputs);
    int64_t share = shareOf(sum, n);
    for (size_t i = 0; i < n; ++i)
      meeting.results.push_back(cutFlat(sum, int64_t(i) * share, share));
    break;
  }
  case CallKind::AllToAll: {
    int64_t share = shareOf(meeting.inputs[0], n);
    for (size_t i = 0; i < n; ++i) {
      std::vector<Tensor> parts;
      for (const Tensor &input : meeting.inputs)
        parts.push_back(cutFlat(input, int64_t(i) * share, share));
      meeting.results.push_back(joinFlat(parts));
    }
    break;
  }
  case CallKind::Barrier:
    meeting.results.resize(n);
    break;
  }
  meeting.isDone = true;
  for (int64_t rank : group)
    ranks[rank].activity = Activity::Running;
  changed.notify_all();
}

Result<Tensor> SimulatedWorld::meet(int64_t rank, const Group &group, const Call &call,
                                    const Tensor &input, const std::string &place) {
  size_t index = std::find(group.begin(), group.end(), rank) - group.begin();
  assert(index < group.size() && "a rank calls for groups it is in");
  Lock lock(mutex);
  RankState &self = ranks[rank];
  self.place = place;
  if (hasFailed)
    return stopped(rank);

  auto found = meetings.try_emplace(MeetingKey{group, self.numCalls[group]++}).first;
  Meeting &meeting = found->second;
  if (meeting.here.empty()) {
    meeting.call = call;
    meeting.inputs.resize(group.size());
    meeting.places.resize(group.size());
    meeting.here.resize(group.size());
  } else if (std::string why = whyMismatch(meeting, group, call, input); !why.empty()) {
    setFailure({ErrorCode::RankFailed, rankName(rank) + " at " + place + ": " + why});
    return stopped(rank);
  }
  meeting.inputs[index] = input;
  meeting.places[index] = place;
  meeting.here[index] = true;

  if (std::find(meeting.here.begin(), meeting.here.end(), false) == meeting.here.end()) {
    complete(meeting, group);
  } else {
    self.meeting = &meeting;
    self.group = &found->first.first;
    Status status = waitUntil(lock, rank, [&] { return meeting.isDone; });
    self.meeting = nullptr;
    if (!status)
      return status.error();
  }
  Tensor result = meeting.results[index];
  if (++meeting.numTaken == group.size())
    meetings.erase(found);
  return result;
}

void SimulatedWorld::deliver(int64_t rank, int64_t to, Tag tag, const Tensor &input,
                             const std::string &place) {
  Lock lock(mutex);
  ranks[rank].place = place;
  mailboxes[{rank, to, tag.lane}].push_back({tag.channel, input, place});
  RankState &receiver = ranks[to];
  if (receiver.activity == Activity::Waiting && !receiver.meeting && receiver.from == rank &&
      receiver.lane == tag.lane) {
    receiver.activity = Activity::Running;
    changed.notify_all();
  }
}

Result<Tensor> SimulatedWorld::receive(int64_t rank, int64_t from, Tag tag,
                                       const kernels::TensorType &type, const std::string &place) {
  Lock lock(mutex);
  RankState &self = ranks[rank];
  self.place = place;
  if (hasFailed)
    return stopped(rank);
  self.from = from;
  self.lane = tag.lane;
  std::deque<Message> &mailbox = mailboxes[{from, rank, tag.lane}];
  if (Status status = waitUntil(lock, rank, [&] { return !mailbox.empty(); }); !status)
    return status.error();
  Message message = std::move(mailbox.front());
  mailbox.pop_front();
  if (message.channel == tag.channel && message.tensor.type() == type)
    return message.tensor;
  setFailure({ErrorCode::RankFailed,
              rankName(rank) + " at " + place + ": recv " + std::to_string(tag.channel) + " of " +
                  toString(type) + " meets send " + std::to_string(message.channel) + " of " +
                  typeOf(message.tensor) + " of " + rankName(from) + " at " + message.place});
  return stopped(rank);
}

} // namespace tbc::comm
