//===- ScheduleBound.h - Bounds on the pipeline of a candidate ------------===//

#ifndef TBC_PLANNER_SEARCH_SCHEDULEBOUND_H
#define TBC_PLANNER_SEARCH_SCHEDULEBOUND_H

#include "planner/search/BoundTables.h"

namespace tbc::planner {

/// The work of one micro-batch, all stages together.
struct MicroBatchWork {
  const DividedWork &kernels;  // evenly divided, by op
  double anywhere = 0;         // least seconds of communication, in unknown positions
  double recomputeSeconds = 0; // least seconds added by recomputation; may be negative

  double seconds() const {
    return kernels.total.forward + kernels.total.backward + kernels.total.weight + anywhere +
           recomputeSeconds;
  }
};

/// Returns a lower bound on the seconds of every send between stages, from leastSendBytes().
/// Example: 2 MiB between ranks with tp=2 and 25 GB/s: 1 MiB each, 42 us plus the latency.
double leastSendSeconds(const BoundTables &tables, const Candidate &candidate);

/// Returns a lower bound on the pipeline's seconds for any cut, without the end of the step, for
/// pp > 1. The result is at least `least`, and the search for it stops at `limit`. `isFinal`: as
/// refinedBound.
///
/// Theorem: the makespan is at least each of these:
/// - (1) one micro-batch through all chunks, forward and backward (without wgrad if the schedule
///   splits it off), with two sends for each hop between stages, over as many different cuts; in a
///   graph with few of these leastPassSends();
/// - (2) CutBound::leastSeconds(): ops are indivisible;
/// - (3) ChainMixture::leastSeconds(): chains of actions that must follow each other;
/// - (4) shortestCutSeconds(): all cuts one by one with their sends, for a small graph.
///
/// Proof sketch: (1) is the longest dependency chain of one micro-batch. For (2) to (4) see the
/// headers of planner/bound. Bounds (3) and (4) are skipped for long schedules, because they are
/// expensive.
///
/// Example: 2 stages, 1 micro-batch of 4 s and 1 hop with sends of 0.1 s: at least 4.2 s by (1).
double leastPipelineSeconds(const BoundTables &tables, const Candidate &candidate,
                            const MicroBatchWork &work, double least, double limit,
                            bool isFinal = false);

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SCHEDULEBOUND_H
