//===- Place.h - Strategies of all ops on one more mesh axis --------------===//

#ifndef TBC_PLANNER_PLACE_PLACE_H
#define TBC_PLANNER_PLACE_PLACE_H

#include "planner/cost/Cost.h"
#include "planner/pins/OpPins.h"
#include "planner/plan/Plan.h"
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
///
/// `shares`: kernelShares() of `graph`; null: computed here.
Placement place(const reshard::Graph &graph, int64_t axisSize, const Job &job,
                const Cluster &cluster, double updatesPerMicroBatch, bool mustSplit = false,
                const PinnedOps &pinned = {}, const std::vector<KernelShare> *shares = nullptr);

/// Returns a lower bound on the seconds of `place` for the ops of `part` (a flag by op) and the
/// reshards between them, without the optimizer. It solves the problem of these ops alone, so
/// bounds of disjoint parts add up.
double placementBound(const reshard::Graph &graph, const std::vector<bool> &part, int64_t axisSize,
                      const Job &job, const Cluster &cluster, bool mustSplit,
                      const std::vector<KernelShare> *shares = nullptr);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLACE_PLACE_H
