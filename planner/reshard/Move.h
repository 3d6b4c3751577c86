//===- Move.h - One step between two shardings -----------------------------===//
//
// Plain C++, internal to planner/reshard. A move takes mesh axes from one position to another;
// `apply` returns the sharding after it, `describe` its collective.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_RESHARD_MOVE_H
#define TBC_PLANNER_RESHARD_MOVE_H

#include "planner/reshard/Collective.h"

#include <string>
#include <vector>

namespace tbc::reshard {

/// A factor of a dim, or the flattened local tensor.
struct Place {
  int dim = -1; // -1: flat
  FactorId factor = 0;
  bool operator==(const Place &o) const { return dim == o.dim && factor == o.factor; }
  bool operator<(const Place &o) const { return dim != o.dim ? dim < o.dim : factor < o.factor; }
};

/// AllReduce: `axes` leave `partial`. ReduceScatter: from `partial` to the end of `to`. ShardSlice:
/// new at the end of `to`. AllGather: removed from the end of `from`. AllToAll: from the end of
/// `from` to the end of `to`, in another dim.
struct Move {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::vector<AxisRef> axes;
  Place from, to;
};

/// Returns the axes at `place`, slowest first.
const std::vector<AxisRef> &axesAt(const Sharding &sharding, const Place &place);

Sharding apply(const Sharding &before, const Move &move);

/// Returns the collective for `move` without its segments; it has all inputs of the cost.
Collective describeSize(const TensorLayout &layout, const Sharding &before, const Move &move);

/// Returns the collective for `move` on a tensor with layout `layout` and sharding `before`.
Collective describe(const TensorLayout &layout, const Sharding &before, const Move &move);

/// Joins adjacent parts of one axis into a bigger part. Example: on an axis of 8, parts 1 x 2 and 2
/// x 4 become the whole axis.
std::vector<AxisRef> joinParts(const std::vector<AxisRef> &axes);

/// Splits the axes of both shardings into common parts, so that equal positions compare equal. Axes
/// with parts that do not nest (2 x 3 and 3 x 2) stay whole.
void splitIntoCommonParts(const Mesh &mesh, Sharding &a, Sharding &b);

/// Ends the program with a message: for calls that break a documented contract, never caused by
/// user input.
[[noreturn]] void brokenContract(const std::string &message);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_MOVE_H
