//===- Place.h - Strategies of all ops for one more mesh axis --------------===//

#ifndef TBC_PLANNER_CORE_PLACE_H
#define TBC_PLANNER_CORE_PLACE_H

#include "planner/core/OpPins.h"
#include "planner/core/Plan.h"
#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

struct Placement {
  /// One per op, on a mesh of the single axis number 0.
  std::vector<reshard::OpStrategy> strategies;
  double seconds = 0;    // of one micro-batch, forward and backward, by the pairwise model
  double lowerBound = 0; // of the pairwise model
  bool exact = false;
  int64_t nodes = 0;
  int64_t compared = 0; // strategies of an op beside those of its neighbours
};

/// The cheapest strategies of all ops of `graph` on `axisSize` adjacent devices.
///
/// A forward op chooses among those of `enumerateStrategies` that are tensor parallelism: not by
/// the batch, and, where it reads a parameter matrix, by a loop of that matrix. Its backward ops
/// inherit; backward sums of several cotangents choose for themselves. Costs: kernels on nodes,
/// reshards between producer and user on edges. A value with several users that may be pending has
/// a node of its own for its home, so that completing it is paid once. `derive` may do slightly
/// better (it merges), never worse in kind.
///
/// `mustSplit`: the user asked for the axis, so ops that multiply with a parameter matrix split it
/// wherever they can, even if repeating the work on every device is faster.
///
/// `updatesPerMicroBatch` weighs the optimizer's work on a parameter, which shrinks with its shard,
/// against kernels: one over the number of micro-batches of a step.
///
/// `pinned`: forward ops choose only among the splits that it allows, as far as they have any.
Placement place(const reshard::Graph &graph, int64_t axisSize, const Job &job,
                const Cluster &cluster, double updatesPerMicroBatch, bool mustSplit = false,
                const PinnedOps &pinned = {});

/// A lower bound of the seconds that `place` finds for the ops of `part` (by op) and what passes
/// between them, the optimizer's work not counted: the problem of those ops alone, so that bounds
/// of parts without an op in common add up.
double placementBound(const reshard::Graph &graph, const std::vector<bool> &part, int64_t axisSize,
                      const Job &job, const Cluster &cluster, bool mustSplit);

/// The strategies of all ops when forward ops have `forward`: backward ops inherit unless `chosen`
/// says that entry of `forward` is their own.
std::vector<reshard::OpStrategy> completeStrategies(const reshard::Graph &graph,
                                                    std::vector<reshard::OpStrategy> strategies);

/// `strategies`, which have no other axes than tp, with the batch or, where an op has them, the
/// experts split over `axes` before that (batchStrategy). An op that cannot have both is not split
/// over tp.
std::vector<reshard::OpStrategy> withExperts(const reshard::Graph &graph,
                                             const std::vector<reshard::OpStrategy> &strategies,
                                             const std::vector<reshard::AxisRef> &axes);

/// Splits the sequence over `axes` in every op of `strategies` that chooses for itself and has none
/// of these axes yet (contextStrategy), and completes the others. Returns "", or why the form
/// cannot be, naming the op.
std::string addContext(const reshard::Graph &graph, std::vector<reshard::OpStrategy> &strategies,
                       const std::vector<reshard::AxisRef> &axes, reshard::ContextForm form);

/// Whether a backward op chooses for itself instead of doing what its forward op did.
bool choosesForItself(const reshard::Graph &graph, int op);

/// Whether splitting `factor` takes the queries of `op` apart from their keys, which stay whole or
/// stream: that is context parallelism.
bool partsQueries(const reshard::GraphOp &op, reshard::FactorId factor);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PLACE_H
