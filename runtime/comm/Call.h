//===- Call.h - The kind of a collective call ------------------------------===//
//
// Part of tbc. Plain C++. Common to the backends: calls that meet must be equal.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_COMM_CALL_H
#define TBC_RUNTIME_COMM_CALL_H

#include "runtime/comm/Communicator.h"

namespace tbc::comm {

enum class CallKind { AllReduce, Broadcast, AllGather, ReduceScatter, AllToAll, Barrier };

struct Call {
  CallKind kind = CallKind::Barrier;
  Reduction reduction = ReduceKind::Sum; // for AllReduce
  int64_t root = 0;                      // for Broadcast: its index in the group

  Call() = default;
  explicit Call(CallKind kind, int64_t root = 0) : kind(kind), root(root) {}
  explicit Call(Reduction reduction) : kind(CallKind::AllReduce), reduction(reduction) {}
  bool operator==(const Call &o) const {
    return kind == o.kind && reduction == o.reduction && root == o.root;
  }
  bool operator!=(const Call &o) const { return !(*this == o); }
};

/// Returns "all_reduce sum", "all_reduce premul_sum by 0.5", "broadcast from index 1",
/// "all_gather", "reduce_scatter", "all_to_all" or "barrier".
std::string describe(const Call &call);

} // namespace tbc::comm

#endif // TBC_RUNTIME_COMM_CALL_H
