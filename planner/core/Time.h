//===- Time.h - From the seconds of its parts to the seconds of a step -----===//

#ifndef TBC_PLANNER_CORE_TIME_H
#define TBC_PLANNER_CORE_TIME_H

#include "planner/core/Cluster.h"
#include "planner/core/Plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// Seconds that one stage spends: per micro-batch unless "step" is in the name.
struct StageSeconds {
  double forward = 0, backward = 0;                 // kernels
  double recompute = 0;                             // kernels run again, in the backward
  double operandsForward = 0, operandsBackward = 0; // collectives between ops
  double gatherForward = 0, gatherBackward = 0;     // gathers of stored parameters
  double reduceMicro = 0;                           // reductions of gradients, each micro-batch
  double reduceStep = 0;                            // of accumulated gradients
  double parameterStep = 0;                         // gathers after the update
  double updateStep = 0;                            // the optimizer's kernels
  double sendForward = 0, sendBackward = 0;         // to the next stage, to the previous one
};

/// What of it counts after overlap. Collectives between ops are always exposed. Gathers and
/// reductions of parameters and gradients hide behind up to overlapFraction of the kernels of their
/// phase; reductions once per step hide behind the last backward as far as it has room left.
/// Gathers after the update are exposed.
struct ExposedSeconds {
  double forward = 0, backward = 0;         // one micro-batch, exposed communication included
  double dataForward = 0, dataBackward = 0; // of those, exposed data communication
  double stepEnd = 0;                       // once per step after the last backward
  double dataStep = 0;                      // of those, communication
  double hidden = 0;                        // communication hidden in one step
};

ExposedSeconds expose(const Cluster &cluster, const StageSeconds &stage, int64_t accumulation);

struct StepTime {
  double seconds = 0;
  TimeSplit split; // of the stage that bounds the step
  int slowestStage = 0;
};

/// The step in closed form: the schedule's fill and drain plus the slowest stage's steady state,
///     sum of (f + b + sends) over stages + (A - 1) * max (f + b) + the longest end of step,
/// exact for equal stages and free sends. Source: Narayanan et al., SC 2021, section 2.2.
StepTime stepTime(const Cluster &cluster, const std::vector<StageSeconds> &stages,
                  int64_t accumulation);

/// The step by running the schedule.
StepTime simulatedStepTime(const Cluster &cluster, const std::vector<StageSeconds> &stages,
                           int64_t accumulation, const std::string &schedule);

/// How many micro-batches a stage holds residuals of at once.
int64_t microBatchesInFlight(const std::string &schedule, int64_t stages, int64_t stage,
                             int64_t accumulation);

/// No schedule of `stages` stages runs `accumulation` micro-batches of `seconds` (all stages
/// together) faster than this. Stage s begins after one micro-batch passed the stages before it and
/// ends before it passed them back, so the step lasts at least A t_s + sum of t_i over i < s for
/// each s; the least maximum over all ways to divide t is t / (1 - (1 - 1/A)^stages).
double pipelineLowerBound(double seconds, int64_t stages, int64_t accumulation);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_TIME_H
