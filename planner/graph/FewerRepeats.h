//===- FewerRepeats.h - A graph with fewer of its repeated blocks ----------===//

#ifndef TBC_PLANNER_GRAPH_FEWERREPEATS_H
#define TBC_PLANNER_GRAPH_FEWERREPEATS_H

#include "planner/reshard/Graph.h"

#include <optional>
#include <vector>

namespace tbc::planner {

/// A graph without the middle occurrences of its repeated block. Costs by op of the original graph
/// are those of `likeOf`.
struct FewerRepeats {
  reshard::Graph graph;
  std::vector<int> opOf;   // by op of `graph`: its op of the original
  std::vector<int> likeOf; // by forward op of the original: the forward op of `graph` like it
  /// By forward op of the original: the op of the original that must have the same strategy and
  /// recomputation for `likeOf` to hold. Outside of repeats it is the op itself.
  std::vector<int> sameAs;
};

/// Returns `graph` with five occurrences of its largest repeated block: the first three and the
/// last two. The third represents those between, because its neighbours are like theirs. Example: a
/// decoder of 126 layers becomes one of 5.
///
/// Returns nullopt if no block has more than five occurrences, or if the occurrences between the
/// first and the last differ by more than position: an op has another kind, size or operand, a
/// value of one occurrence is read by others than its neighbours, or one has model state.
std::optional<FewerRepeats> withFewerRepeats(const reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_GRAPH_FEWERREPEATS_H
