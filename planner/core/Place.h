//===- Place.h - Strategies of all ops on one more mesh axis --------------===//

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
  double seconds = 0;    // of one micro-batch, forward and backward, in the pairwise model
  double lowerBound = 0; // of the pairwise model
  bool exact = false;
  int64_t nodes = 0;
  int64_t compared = 0; // pairs of strategies of neighbouring ops
};

/// Returns the cheapest strategies of all ops of `graph` on `axisSize` adjacent devices.
///
/// A forward op chooses among the tensor-parallel strategies of `enumerateStrategies`: never by the
/// batch, and, if it reads a parameter matrix, by a loop of that matrix. Its backward ops inherit
/// the choice; backward sums of several cotangents choose for themselves. Costs are kernels on
/// nodes and reshards between producer and user on edges. A value with several users that may be
/// partial has a node of its own for its home, so completing it is paid once. `derive` merges
/// reshards, so it may do slightly better.
///
/// `mustSplit`: the user requested the axis. Ops that multiply with a parameter matrix then split
/// it if they can, even if repeating the work on every device is faster.
///
/// `updatesPerMicroBatch` weighs the optimizer's time for a parameter, which shrinks with its
/// shard, against kernels. It is 1 / micro-batches per step. Example: 0.25 with 4 micro-batches.
///
/// `pinned`: forward ops choose only among the allowed splits, if they have any of these.
Placement place(const reshard::Graph &graph, int64_t axisSize, const Job &job,
                const Cluster &cluster, double updatesPerMicroBatch, bool mustSplit = false,
                const PinnedOps &pinned = {});

/// Returns a lower bound on the seconds of `place` for the ops of `part` (a flag by op) and the
/// reshards between them, without the optimizer. It solves the problem of these ops alone, so
/// bounds of disjoint parts add up.
double placementBound(const reshard::Graph &graph, const std::vector<bool> &part, int64_t axisSize,
                      const Job &job, const Cluster &cluster, bool mustSplit);

/// Returns the strategies of all ops, given those of the forward ops. Backward ops inherit, except
/// ops that choose for themselves (choosesForItself); these keep their entry.
std::vector<reshard::OpStrategy> completeStrategies(const reshard::Graph &graph,
                                                    std::vector<reshard::OpStrategy> strategies);

/// Returns `strategies`, which use no axis but tp, with the batch or, in ops with experts, the
/// experts split over `axes` first (batchStrategy). An op that cannot have both loses its tp split.
std::vector<reshard::OpStrategy> withExperts(const reshard::Graph &graph,
                                             const std::vector<reshard::OpStrategy> &strategies,
                                             const std::vector<reshard::AxisRef> &axes);

/// Splits the sequence over `axes` (contextStrategy) in every op of `strategies` that chooses for
/// itself and has none of these axes yet. Completes the other ops. Returns "", or the reason
/// against the form with the name of the op.
std::string addContext(const reshard::Graph &graph, std::vector<reshard::OpStrategy> &strategies,
                       const std::vector<reshard::AxisRef> &axes, reshard::ContextForm form);

/// Whether a backward op chooses for itself instead of inheriting from its forward op.
bool choosesForItself(const reshard::Graph &graph, int op);

/// Whether splitting `factor` separates the queries of `op` from its keys, while the keys stay
/// whole or stream: context parallelism (CP).
bool partsQueries(const reshard::GraphOp &op, reshard::FactorId factor);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PLACE_H
