//===- CandidateBound.h - Cheap lower bound on the step time --------------===//
//
// The cheap bound, for every candidate. RefinedBound.h has the expensive one.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_SEARCH_CANDIDATEBOUND_H
#define TBC_PLANNER_SEARCH_CANDIDATEBOUND_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

/// Lower bounds on the step time in seconds.
struct TimeBounds {
  double lower = 0;  // of every plan that the search makes from the candidate
  double proven = 0; // of every plan with its mesh, micro-batch, ZeRO and schedule
};

/// Returns both bounds of `candidate`, in closed form.
///
/// Theorem: a plan takes at least leastMakespan(W) + U seconds. W: the work of a micro-batch, all
/// stages together. U: leastUpdateSeconds(), after the pipeline.
/// - proven: W without the exchanges that cp could avoid (if mayBeContext), leastMakespan() for any
///   chunks. On heterogeneous devices also the slowest stage's kernels of all micro-batches + U.
/// - lower: W with batch sums and the placement's bound, or with the exchanges of experts and the
///   exposed gathers and reductions of ZeRO-2 and 3 if that is more; leastMakespan() for chunks of
///   equal length on a stage. The search considers only these. It does not hold for meshes with a
///   cp axis that the candidate does not have.
///
/// Proof sketch: the stages divide W in some way, and leastMakespan() (runtime/schedule) holds for
/// every division. The update waits for the last gradients; the stage with the largest share ends
/// the step, and it takes at least the mean.
///
/// Example: 1F1B on 2 stages, 4 micro-batches of W = 4 ms and U = 1 ms:
/// 4 / (1 - 0.75^2) + 1 = 10.14 ms.
TimeBounds candidateBounds(const BoundTables &tables, const Candidate &candidate);

/// Whether the candidate's bound must also hold for unlisted meshes with cp. Such a mesh takes a
/// factor of tp or of the data axes for cp, and no other candidate covers it. Larger micro-batches
/// are better split over data ranks.
bool mayBeContext(const SearchProblem &problem, const Candidate &candidate);

/// Returns a lower bound on any plan of the job: all matmul FLOPs that no kernel skips, at the
/// highest peak rate, on all devices. Example: 8e17 FLOPs on 8 devices of 1e15 FLOP/s: 100 s.
double peakRateSeconds(const SearchProblem &problem);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_CANDIDATEBOUND_H
