//===- BufferList.h - Buffers in the order of instructions -----------------===//
//
// Plain C++. Internal to Buffers.cpp and UpdateBuffers.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_BUFFERLIST_H
#define TBC_PLANNER_CORE_BUFFERLIST_H

#include "planner/core/Buffers.h"

#include <algorithm>

namespace tbc::planner {

/// Instructions that read and make buffers. A buffer is named by its number, what lies in a slot by
/// `inSlot`.
class BufferList {
public:
  static constexpr int inSlot = -1;

  /// Begins an instruction; op: for which it is there.
  void next(int op = -1) { buffers.opOf.push_back(op); }
  void read(int buffer) {
    if (buffer != inSlot)
      buffers.lifetimes[buffer].last = now();
  }
  int make(double bytes, BufferKind kind) {
    buffers.lifetimes.push_back({int64_t(bytes), now(), now()});
    buffers.kinds.push_back(kind);
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
      next(op);
      read(from);
      from = make(double(elements * elementBytes),
                  i + 1 == steps.size() ? lastKind : BufferKind::Collective);
    }
    return from;
  }

  BlockBuffers buffers;

private:
  int64_t now() const { return int64_t(buffers.opOf.size()) - 1; }

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
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_BUFFERLIST_H
