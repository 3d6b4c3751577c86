//===- Time.h - From the seconds of stages to the seconds of a step -------===//

#ifndef TBC_PLANNER_PREDICT_TIME_H
#define TBC_PLANNER_PREDICT_TIME_H

#include "planner/devices/Cluster.h"
#include "planner/devices/StageDevices.h"
#include "planner/plan/Plan.h"
#include "runtime/schedule/Schedule.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// The schedule of a pipeline of one stage or more.
struct PipelineSchedule {
  ScheduleKind kind = schedule::kindWithoutPipeline;
  schedule::Pipeline pipeline;
  int64_t accumulation = 1;
  std::vector<std::vector<schedule::Action>> actions; // by stage

  /// Whether a gradient is complete after a single backward. A reduction once per step then runs
  /// there and not in the update (reshard::derive).
  bool reducesInBackward() const { return accumulation == 1 && pipeline.numStages == 1; }
  /// Whether a step ends with the last backwards of the first chunks, each on the stage of its
  /// number: chunk 0 on stage 0 ends it, and stage s idles from the last backward of chunk s. So it
  /// is without a wgrad apart.
  bool endsWithFirstChunks() const;

  /// `kind` as in a plan; an empty `chunkStage` means one chunk per stage. The arguments must be
  /// valid.
  static PipelineSchedule make(std::optional<ScheduleKind> kind, int64_t stages,
                               const std::vector<int> &chunkStage, int64_t accumulation);
};
PipelineSchedule scheduleOf(const Plan &plan);

/// Seconds of a stage after overlap.
/// - Collectives between ops are always exposed.
/// - Gathers and reductions of parameters and gradients hide behind up to overlapFraction of the
///   kernels of their phase. The first gather and the last reduction of a block are exposed: there
///   are no kernels before the one and after the other.
/// - Reductions once per step hide behind the remaining headroom of backward if they are part of it
///   (PipelineSchedule::reducesInBackward). Else they are part of the update, and exposed.
/// - Sums of accumulated gradients that an executor begins in the last backward (reduceLast) hide
///   behind its `lastBackward` of those kernels. In a pipeline they are exposed: messages between
///   stages queue behind them.
/// - tbc's own executor begins those of the first chunk there (GradientLast). They hide as those of
///   each micro-batch do, but for the last one (lastReduceStep). Later stages reduce while they
///   would idle, behind the last backwards of the stages before them (stepTime).
/// - Hidden communication slows the kernels by overlapSlowdown of itself; this counts as exposed.
/// - Gathers after the update and sums of the step's scalars are exposed.
/// - Copies between device and host are exposed, because they run in program order.
/// - The host launches the kernels of a phase while the device runs earlier ones. A phase takes the
///   longer of both, so long kernels hide the launches of short ones.
/// - Messages between stages that hold their ranks come on top.
///
/// Example: 10 ms of gathers beside 8 ms of kernels, with a fraction of 0.5 and a slowdown of 0.1,
/// expose 6 + 0.4 ms. 200 launches of 80 microseconds expose another 1.6 ms.
struct ExposedSeconds {
  // One micro-batch, exposed communication included.
  double forward = 0, backward = 0, weight = 0;
  double microBatch() const { return forward + backward + weight; }
  // Of those, the device waits for the host to launch kernels.
  double waitForward = 0, waitBackward = 0, waitWeight = 0;
  double waits() const { return waitForward + waitBackward + waitWeight; }
  double data = 0;     // of those, exposed data communication
  double stepEnd = 0;  // once per step after the last backward
  double dataStep = 0; // of those, communication
  double host = 0;     // of all above, in one step: copies between device and host
  double hidden = 0;   // communication hidden in one step
};

ExposedSeconds expose(const Cluster &cluster, const StageSeconds &stage,
                      const PipelineSchedule &schedule);

struct StepTime {
  double seconds = 0;
  TimeSplit split; // of the stage that bounds the step
  int slowestStage = 0;
};

/// Returns the step time in closed form: A micro-batches on the slowest stage, the schedule's
/// bubble from the other stages' times, the sends of one micro-batch, and the longest end of step.
/// The bubble is the sum of schedule::bubbleSeconds() of the other stages. Exact for equal stages
/// and free sends. `chunks`: seconds by chunk. Example: 1f1b with 4 stages of 3 ms and 8
/// micro-batches takes 8 * 3 + 3 * 3 = 33 ms.
StepTime stepTime(const StageDevices &devices, const std::vector<StageSeconds> &chunks,
                  const PipelineSchedule &schedule);

/// The events of a predicted step. Stages run their actions, wait for the last stage, and run their
/// update together.
struct StepTrace {
  schedule::Timeline timeline; // without updates
  std::vector<ExposedSeconds> chunks, stages;
  std::vector<schedule::ChunkTimes> times; // by chunk
  double updateBegin = 0;                  // seconds; the update of stage s lasts stages[s].stepEnd
  double seconds = 0;                      // of the step
};

/// Returns the step time by simulating the schedule. Records the simulated step in `trace`, if
/// there is one. Example: one stage of 1 ms forward and 2 ms backward with 2 micro-batches has
/// events that begin at 0, 1, 3 and 4 ms.
StepTime simulatedStepTime(const StageDevices &devices, const std::vector<StageSeconds> &chunks,
                           const PipelineSchedule &schedule, StepTrace *trace = nullptr);

/// Returns the times of chunks in that simulation. A send takes its own time, and at least that of
/// the first chunk's forward: on this the bound of sends rests (bound/SendBound.h). Example: sends
/// of 1, 1 and 8 ms, the last of logits to the stage of the loss, are priced so.
std::vector<schedule::ChunkTimes> chunkTimes(const StageDevices &devices,
                                             const std::vector<StageSeconds> &chunks,
                                             const PipelineSchedule &schedule);

} // namespace tbc::planner

#endif // TBC_PLANNER_PREDICT_TIME_H
