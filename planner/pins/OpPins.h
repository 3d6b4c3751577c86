//===- OpPins.h - The user's decisions about single ops -------------------===//

#ifndef TBC_PLANNER_PINS_OPPINS_H
#define TBC_PLANNER_PINS_OPPINS_H

#include "planner/devices/Executor.h"
#include "planner/pins/Pins.h"

#include <vector>

namespace tbc::planner {

/// Returns the words allowed in OpPin::spec.
const std::vector<std::string> &opPinWords();
/// Returns the pin as given by the user. Example: "--pin *.mlp.*=tp".
std::string toString(const OpPin &pin);

/// How an axis splits an op, as bits:
/// - WholeOp: not at all;
/// - ColumnSplit: by a loop through the results of a parameter matrix it reads;
/// - RowSplit: by a summed loop of that matrix;
/// - TokenSplit: by the loop over the tokens of a sample;
/// - OtherSplit: by another loop.
enum SplitKind : unsigned {
  WholeOp = 1,
  ColumnSplit = 2,
  RowSplit = 4,
  OtherSplit = 8,
  TokenSplit = 16,
  AnySplit = 31
};

/// Returns the kind of split of `strategy` over mesh axis `axis` (-1: not in the mesh).
SplitKind splitKind(const reshard::Graph &graph, int op, const reshard::OpStrategy &strategy,
                    int axis);

/// Whether `value` is a parameter with dims used in a matmul.
bool isParameterMatrix(const reshard::Graph &graph, int value);

/// Pins of ops, resolved in a graph. Backward ops follow their forward op.
struct PinnedOps {
  enum class Keep { Open, Keep, Recompute };

  std::vector<unsigned> splits; // by op: the allowed SplitKinds; empty: any
  std::vector<Keep> keep;       // by op; empty: open
  /// By op: its splits hold only where its sizes allow them. Empty: they always hold.
  std::vector<bool> isPreference;
  /// The first forward ops of the stages after the first, ascending; empty: open.
  std::vector<int> begins;
  /// Whether ops without pins follow the layout of the executor: no pin is about splits. Models
  /// with experts have no such layout, but must fit the executor's sizes all the same.
  bool followsLayout = false;
  /// The first pin for a split over tp, or null.
  const OpPin *splitter = nullptr;
  /// The first pin for the beginning of a stage, or null.
  const OpPin *beginner = nullptr;

  /// Errors: Usage if
  /// - a glob has no match (with a suggestion);
  /// - no matching op can satisfy the pin;
  /// - two pins leave an op without a choice (both are named), or begin the same stage.
  /// Without pins for splits, all ops follow `layout`, if the model has no experts.
  static Result<PinnedOps> make(const reshard::Graph &graph, const Job &job,
                                const std::vector<OpPin> &pins,
                                TensorParallel layout = TensorParallel::Any);

  bool allows(int op, SplitKind kind) const { return splits.empty() || (splits[op] & kind) != 0; }
  /// Whether `strategies`, with tp as axis `axis` of their mesh, satisfy the pins.
  bool areMetBy(const reshard::Graph &graph, const std::vector<reshard::OpStrategy> &strategies,
                int axis) const;
  /// Sets the pinned entries of `recompute`, a flag per op.
  void applyTo(std::vector<bool> &recompute) const;
};

/// Returns the forward ops of `graph` that match `glob`, ascending, without generators. A glob may
/// match the op's id, its module, its module and kind ("h.0.mlp.gelu"), or either name of a
/// parameter it reads.
std::vector<int> matchingOps(const reshard::Graph &graph, const Job &job, const std::string &glob);

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_OPPINS_H
