//===- TensorMoves.h - Cheapest collectives, enumerated a second time -----===//
//
// Written without planner/reshard's own search, to be compared with it. A placement names whole
// mesh axes, and every possible step of a tensor is tried.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_TENSORMOVES_H
#define TBC_TESTS_TOOLS_TENSORMOVES_H

#include "planner/reshard/Collective.h"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tbc::test {

/// A factor of a dim.
using Place = std::pair<int, reshard::FactorId>;

/// The sharding of a tensor, with mesh axes as indices. Entries of `split` are never empty.
struct Placement {
  std::map<Place, std::vector<int>> split;    // the first axis is the slowest
  std::map<int, reshard::ReduceKind> partial; // partial sums, by axis
  std::vector<int> flat;                      // chunks of the rest that `split` leaves

  bool operator==(const Placement &o) const {
    return split == o.split && partial == o.partial && flat == o.flat;
  }
  bool operator!=(const Placement &o) const { return !(*this == o); }
  bool operator<(const Placement &o) const {
    return std::tie(split, partial, flat) < std::tie(o.split, o.partial, o.flat);
  }
};

bool names(const std::vector<int> &axes, int axis);
/// Returns whether the placement names the axis anywhere.
bool uses(const Placement &placement, int axis);

/// A collective as in the list; `axes` ascending.
struct Message {
  reshard::CollectiveKind kind;
  std::vector<int> axes;
  int64_t bytes = 0; // of the side that is full along `axes`
  bool operator<(const Message &o) const {
    return std::tie(kind, axes, bytes) < std::tie(o.kind, o.axes, o.bytes);
  }
  bool operator==(const Message &o) const {
    return kind == o.kind && axes == o.axes && bytes == o.bytes;
  }
};
using Messages = std::vector<Message>;

/// Sizes of a tensor on the ranks of one mesh, and the cheapest path between two placements.
class TensorMoves {
public:
  explicit TensorMoves(const reshard::Mesh &mesh) : mesh(mesh) {}

  int64_t ranks(const std::vector<int> &axes) const;
  /// Returns the elements that a rank holds; for a flat placement the chunk, padding included.
  int64_t localElements(const reshard::TensorLayout &layout, const Placement &placement) const;
  int64_t localBytes(const reshard::TensorLayout &layout, const Placement &placement) const;

  /// Returns every sequence of steps that is cheapest in bytes on the wire and, among those,
  /// shortest (a local slice is a step). Each is given once by its sorted communications; the
  /// result is sorted. `to` keeps the axes of `from.partial` that it names. Aborts if there is no
  /// path.
  std::vector<Messages> cheapest(const reshard::TensorLayout &layout, const Placement &from,
                                 const Placement &to) const;

private:
  struct Search;
  const reshard::Mesh &mesh;
};

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_TENSORMOVES_H
