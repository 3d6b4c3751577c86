//===- OpPins.h - What the user has decided about single ops ---------------===//

#ifndef TBC_PLANNER_CORE_OPPINS_H
#define TBC_PLANNER_CORE_OPPINS_H

#include "planner/core/Search.h"

#include <vector>

namespace tbc::planner {

/// How an op lies on an axis, as bits: not split by it; by a loop through the results of a matrix
/// of parameters that it reads, or by one that is summed over; by another loop.
enum SplitKind : unsigned {
  WholeOp = 1,
  ColumnSplit = 2,
  RowSplit = 4,
  OtherSplit = 8,
  AnySplit = 15
};

/// The kind of split that `strategy` has over mesh axis `axis` (-1: the mesh has it not).
SplitKind splitKind(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                    int axis);

/// Whether `value` is a parameter with dims to multiply by.
bool isParameterMatrix(const reshard::Graph &graph, int value);

/// Pins of ops, found in a graph. Backward ops do what their forward op does.
struct PinnedOps {
  enum class Keep { Open, Keep, Recompute };

  std::vector<unsigned> splits; // by op: the SplitKinds it may have; empty: any
  std::vector<Keep> keep;       // by op; empty: open
  /// The forward ops with which the stages after the first begin, ascending; empty: open.
  std::vector<int> begins;
  /// The first pin that asks for a split over tp, or null.
  const OpPin *splitter = nullptr;
  /// The first pin that says where a stage begins, or null.
  const OpPin *beginner = nullptr;

  /// Errors: Usage, where a glob matches nothing (with a suggestion), no op that it matches can do
  /// what is asked, two pins leave an op nothing to do (both are named), or begin one stage.
  static Result<PinnedOps> make(const reshard::Graph &graph, const Job &job,
                                const std::vector<OpPin> &pins);

  bool allows(int op, SplitKind kind) const { return splits.empty() || (splits[op] & kind) != 0; }
  /// Whether `strategies`, with tp as axis `axis` of their mesh, are as pinned.
  bool areMetBy(const reshard::Graph &graph, const std::vector<reshard::OpStrategy> &strategies,
                int axis) const;
  /// Sets what is pinned of `recompute`, a flag per op.
  void applyTo(std::vector<bool> &recompute) const;
};

/// The ops of `graph` that `glob` matches: by their id, their module, the module and the kind of
/// the op ("h.0.mlp.gelu"), or a parameter that they read, by either of its names. Forward ops,
/// ascending; generators are none.
std::vector<int> matchingOps(const reshard::Graph &graph, const Job &job, const std::string &glob);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_OPPINS_H
