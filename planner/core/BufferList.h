//===- BufferList.h - Buffers in the order of instructions -----------------===//
//
// Plain C++. Internal to Buffers.cpp and UpdateBuffers.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_BUFFERLIST_H
#define TBC_PLANNER_CORE_BUFFERLIST_H

#include "planner/core/Buffers.h"
#include "runtime/memory/Streams.h"

#include <algorithm>

namespace tbc::planner {

/// Instructions that read and make buffers. A buffer is named by its number, what lies in a slot by
/// `inSlot`.
class BufferList {
public:
  static constexpr int inSlot = -1;

  /// Begins an instruction; op: for which it is there.
  void next(int op = -1, bool isCommunication = false) {
    buffers.opOf.push_back(op);
    uses.push_back({isCommunication, {}});
  }
  void read(int buffer) {
    if (buffer == inSlot)
      return;
    usersOf[buffer].push_back(now());
    uses.back().sources.push_back(usersOf[buffer].front());
  }
  int make(double bytes, BufferKind kind) {
    buffers.lifetimes.push_back({int64_t(bytes), now(), now()});
    buffers.kinds.push_back(kind);
    usersOf.push_back({now()});
    return int(buffers.kinds.size()) - 1;
  }
  /// It is made in a slot, not beside.
  void moveToSlot(int buffer) {
    if (buffer != inSlot)
      buffers.lifetimes[buffer].bytes = 0;
  }

  /// One instruction per step of a resharding of `elements` elements in `from`; returns the last
  /// result, `from` if there are no steps. `lastKind`: of that; others are Collective.
  int addSteps(const std::vector<reshard::Collective> &steps, int from, int64_t elements,
               int64_t elementBytes, BufferKind lastKind, int op = -1) {
    for (size_t i = 0; i < steps.size(); ++i) {
      elements = elementsAfter(steps[i], elements);
      next(op, steps[i].kind != reshard::CollectiveKind::ShardSlice);
      read(from);
      from = make(double(elements * elementBytes),
                  i + 1 == steps.size() ? lastKind : BufferKind::Collective);
    }
    return from;
  }

  /// A member of a bucket: what it has so far, from which its next step goes on.
  struct Member {
    const reshard::Reshard *reshard;
    int buffer;
    int64_t elements, elementBytes;
    size_t at = 0; // into its steps
  };

  /// The reshards of a bucket: slices one by one, messages together. Leaves in `members` what they
  /// give.
  void addBucket(std::vector<Member> &members, int op = -1) {
    auto isAtMessage = [](const Member &member) {
      return member.at < member.reshard->steps.size();
    };
    auto skipSlices = [&](Member &member) {
      const std::vector<reshard::Collective> &steps = member.reshard->steps;
      for (; isAtMessage(member) && steps[member.at].kind == reshard::CollectiveKind::ShardSlice;
           ++member.at) {
        next(op);
        read(member.buffer);
        takeStep(member);
      }
    };
    for (;;) {
      std::for_each(members.begin(), members.end(), skipSlices);
      if (members.empty() || !isAtMessage(members.front()))
        return; // all have as many messages
      next(op, /*isCommunication=*/true);
      for (const Member &member : members)
        read(member.buffer);
      for (Member &member : members) {
        takeStep(member);
        ++member.at;
      }
    }
  }

  /// The buffers, each alive until whatever follows is known to begin after all that work on it:
  /// communication runs beside what comes after it.
  BlockBuffers finish() {
    memory::StreamOrder order(memory::overlapCommunication(uses));
    for (size_t buffer = 0; buffer < usersOf.size(); ++buffer)
      for (int user : usersOf[buffer])
        buffers.lifetimes[buffer].last =
            std::max(buffers.lifetimes[buffer].last, int64_t(order.settled(user)) - 1);
    return std::move(buffers);
  }

private:
  /// Makes the result of the member's step in the instruction under way.
  void takeStep(Member &member) {
    member.elements = elementsAfter(member.reshard->steps[member.at], member.elements);
    member.buffer = make(double(member.elements * member.elementBytes), BufferKind::Collective);
  }

  int now() const { return int(buffers.opOf.size()) - 1; }

  /// The elements that a rank has after a step, of `elements` before it.
  static int64_t elementsAfter(const reshard::Collective &step, int64_t elements) {
    int64_t n = reshard::groupSize(step.axes);
    switch (step.kind) {
    case reshard::CollectiveKind::AllGather:
      return step.dim < 0 ? step.numElements : elements * n;
    case reshard::CollectiveKind::ReduceScatter:
    case reshard::CollectiveKind::ShardSlice:
      return step.dim < 0 ? (step.numElements + n - 1) / n : elements / n;
    case reshard::CollectiveKind::AllReduce:
    case reshard::CollectiveKind::AllToAll:
    case reshard::CollectiveKind::Send:
    case reshard::CollectiveKind::Permute:
      break;
    }
    return elements;
  }

  BlockBuffers buffers;
  std::vector<memory::StreamUse> uses;   // by instruction
  std::vector<std::vector<int>> usersOf; // by buffer: what makes it, then what reads it
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_BUFFERLIST_H
