//===- Move.h - One step between two shardings -----------------------------===//
//
// Plain C++, internal to planner/reshard. A move says which mesh axes go from where to where;
// `apply` gives the sharding after it, `describe` the collective that does it.
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

/// AllReduce: `axes` leave pending. ReduceScatter: they go from pending to the end of `to`.
/// ShardSlice: from nowhere to the end of `to`. AllGather: from the end of `from` to nowhere.
/// AllToAll: from the end of `from` to the end of `to`, in another dim.
struct Move {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::vector<AxisRef> axes;
  Place from, to;
};

/// The axes at `place`, slowest first.
const std::vector<AxisRef> &axesAt(const Sharding &sharding, const Place &place);

Sharding apply(const Sharding &before, const Move &move);

/// The collective for `move` without its segments: all that decides its cost.
Collective describeSize(const TensorLayout &layout, const Sharding &before, const Move &move);

/// The collective for `move` on a tensor laid out as `layout` and sharded as `before`.
Collective describe(const TensorLayout &layout, const Sharding &before, const Move &move);

/// Joins adjacent parts of one axis into a bigger part.
std::vector<AxisRef> joinParts(const std::vector<AxisRef> &axes);

/// Splits the axes of both shardings into common parts, so that equal places compare equal. Axes
/// that are read in ways that do not nest (2 x 3 and 3 x 2) are left whole.
void splitIntoCommonParts(const Mesh &mesh, Sharding &a, Sharding &b);

/// Ends the program with a message: for calls that break a documented contract, which no user input
/// can cause.
[[noreturn]] void brokenContract(const std::string &message);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_MOVE_H
