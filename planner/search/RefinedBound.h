//===- RefinedBound.h - Expensive lower bound on the step time ------------===//
//
// The expensive bound, for the few candidates that may beat the best plan found so far.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_REFINEDBOUND_H
#define TBC_PLANNER_SEARCH_REFINEDBOUND_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

/// The meshes of a bound: the candidate's own, or also its unlisted variants with cp
/// (mayBeContext), of which the least bound counts.
enum class BoundMeshes { Own, WithContexts };

/// Returns a lower bound on the seconds of every plan faster than `limit` with the candidate's
/// `meshes`, micro-batch, ZeRO and schedule: at least candidate.provenBound, at most `limit`. A
/// result of `limit` means that no such plan is faster. `isFinal`: takes all rounds for a bound
/// below `limit`, too. Without it, a bound that cannot reach the limit costs less and proves less.
///
/// Theorem: step >= P + E.
/// - P, the pipeline: leastPipelineSeconds() of a micro-batch with its kernels, the exposed
///   collectives, and the recomputation forced by memory; the mean work of a stage; the longest op.
/// - E, the end: the update, the reductions after backward, and the sum of scalars.
///
/// Proof sketch: the stages together keep at most mostKeptBytes(), and KeepBound gives the least
/// recomputation for that. Kernels, exchanges between ops and exposed transfers of a micro-batch
/// are disjoint intervals of the stages' time, each with a lower bound for every placement. The
/// update begins after the last backward of its stage.
///
/// Example: 4 micro-batches on 1 stage, each with 10 ms of kernels, 1 ms of exposed collectives and
/// 2 ms of forced recomputation; an update of 3 ms: 4 * 13 + 3 = 55 ms.
double refinedBound(const BoundTables &tables, const Candidate &candidate, double limit,
                    BoundMeshes meshes, bool isFinal = false);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_REFINEDBOUND_H
