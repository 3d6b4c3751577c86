//===- ParameterBound.h - Bounds on updates, gathers and reductions -------===//

#ifndef TBC_PLANNER_SEARCH_PARAMETERBOUND_H
#define TBC_PLANNER_SEARCH_PARAMETERBOUND_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

// Lower bounds on the seconds for parameters. They hold for any placement and any cuts, because
// they use only sums over all parameters: a collective over n ranks moves at least the average
// share of each rank, and every one of k collectives takes at least its start.

/// Returns the part of a backward's kernels that may hide reductions once per step; 0 if they are
/// exposed. They may hide with one micro-batch and one stage (as in PipelineSchedule), or if the
/// executor begins them in the last backward. Infinite where they may hide wholly: in pipelines
/// with stages that idle before the step's end (PipelineSchedule::endsWithFirstChunks). Example:
/// 0.8 for one stage of a framework whose data-parallel module reduces a bucket when its gradients
/// are complete.
double hidingFraction(const Cluster &cluster, const Candidate &candidate);

/// Returns a lower bound on the gradient reductions at the end of a step, summed over the stages,
/// in the fewest possible buckets.
///
/// Theorem: k reductions of b bytes in total take at least k * t(0) - t(0) + t(b), where t(x) are
/// the seconds of one collective of x bytes.
///
/// Proof sketch: t is a start plus a term that grows with x, and is subadditive in that term. So k
/// collectives take k starts and at least the rest of one collective of all bytes.
///
/// Example: t(0) = 20 us, t(1 GB) = 5 ms and 3 buckets: 60 us - 20 us + 5 ms = 5.04 ms.
double reduceStepSeconds(const BoundTables &tables, const Candidate &candidate,
                         const DataMode &mode);

/// Returns a lower bound on the update and the reductions at the end of a step, on the stage where
/// they take longest: the mean over the stages. Example: 8 ms in total on 4 stages: 2 ms.
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
/// Example: gathers of 5 ms beside forward kernels that hide 4 ms expose at least 1 ms, wherever
/// each gather stands.
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
