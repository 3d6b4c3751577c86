//===- ParameterBound.h - Bounds on updates, gathers and reductions -------===//

#ifndef TBC_PLANNER_SEARCH_PARAMETERBOUND_H
#define TBC_PLANNER_SEARCH_PARAMETERBOUND_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

// Lower bounds on the seconds for parameters. They hold for any placement and any cuts, because
// they use only sums over all parameters: a collective over n ranks moves at least the average
// share of each rank, and every one of k collectives takes at least its start.

/// Returns the part of a backward's kernels that may hide reductions once per step: those of
/// several micro-batches, in the last backward of tbc's Programs or of an executor that begins them
/// there. Infinite where they may hide wholly, in pipelines with stages that idle before the step's
/// end (PipelineSchedule::endsWithFirstChunks). Else 0. Example: 0.8 for one stage of a framework
/// whose data-parallel module reduces a bucket when its gradients are complete.
double hidingFraction(const Cluster &cluster, const Candidate &candidate);

/// Returns a lower bound on the gradient reductions once per step, summed over the stages, in the
/// fewest possible buckets (leastJoinedSeconds). Example: with t(x) seconds for x bytes, t(0) = 20
/// us and t(1 GB) = 5 ms, one bucket of 1 GB takes 5 ms.
double reduceStepSeconds(const BoundTables &tables, const Candidate &candidate,
                         const DataMode &mode);

/// Returns a lower bound on the update and the reductions at the end of a step, on the stage where
/// they take longest: the mean over the stages. Without the reductions that a backward may hide.
/// Example: 8 ms in total on 4 stages: 2 ms.
double leastUpdateSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode);

/// Returns a lower bound on the sum of the step's scalars over all devices, or of the loss over the
/// data ranks, on one stage.
double leastScalarSeconds(const CostTables &costs, const MeshShape &mesh);

/// Returns a lower bound on the exposed part of the gathers and reductions of one micro-batch.
///
/// Theorem: exposed(sum of transfers, sum of kernels of a phase) bounds the sum of the exposed
/// parts, where exposed(t, k) is the part of a `t`-second transfer beyond the kernels that hide it.
///
/// Proof sketch: exposed() is convex in the transfer and positively homogeneous in both arguments,
/// so the exposed time of a sum is at most the sum of the exposed times.
///
/// With one stage, in tbc's own Programs, f seconds of the first gather and l of the last bucket of
/// reductions are exposed (predict/BlockEnds.h). The bound f + l + exposed(t - f - l, k) grows with
/// f, l and t, so each of these may be a lower bound. Either one bucket has all reductions of its
/// kind, or there are two, and the last has at least the gradient that backward completes last.
///
/// If the only backward of a step reduces its gradients, these reductions count here too.
///
/// Example: gathers of 5 ms beside forward kernels that hide 4 ms expose at least 1 ms, wherever
/// each gather stands. If the first gather takes 0.5 ms, they expose at least 0.5 + 0.5 ms.
///
/// `total`: the evenly divided kernels. `recomputeSeconds`: added to backward.
double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, const WorkShare &total, double recomputeSeconds);

/// Returns the same with forward and backward taken as one phase of `kernels` seconds, evenly
/// divided: at most the above, without the kernels of each phase. It is added to
/// idealRecomputedSeconds(): an overlap fraction of at most 1 means that a second more of kernels
/// hides at most a second, so the sum of both holds for longer kernels too.
double exposedDataSeconds(const BoundTables &tables, const Candidate &candidate,
                          const DataMode &mode, double kernels);

/// Returns the exposed part of a `transfer`-second collective that overlaps with `kernels` seconds
/// of compute. Example: with an overlap fraction of 0.9 and no slowdown, 5 s beside 4 s of compute
/// expose 1.4 s.
double exposedSeconds(const Cluster &cluster, double transfer, double kernels);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_PARAMETERBOUND_H
