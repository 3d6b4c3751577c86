//===- Time.cpp - From the seconds of stages to the seconds of a step -----===//

#include "planner/predict/Time.h"

#include <algorithm>
#include <cassert>

namespace tbc::planner {

PipelineSchedule PipelineSchedule::make(std::optional<ScheduleKind> kind, int64_t stages,
                                        const std::vector<int> &chunkStage, int64_t accumulation) {
  PipelineSchedule result;
  assert((kind || stages == 1) && "schedules are checked where they are read");
  result.kind = kind.value_or(schedule::kindWithoutPipeline);
  result.pipeline = schedule::Pipeline::plain(int(stages));
  if (!chunkStage.empty())
    result.pipeline.chunkStage = chunkStage;
  result.accumulation = accumulation;
  // One stage holds the same for many micro-batches as for one.
  result.actions =
      schedule::schedules(result.kind, result.pipeline, stages == 1 ? 1 : accumulation);
  return result;
}

bool PipelineSchedule::endsWithFirstChunks() const {
  for (int stage = 0; stage < pipeline.numStages; ++stage)
    if (pipeline.chunkStage[size_t(stage)] != stage)
      return false;
  return !schedule::splitsBackward(kind);
}

PipelineSchedule scheduleOf(const Plan &plan) {
  return PipelineSchedule::make(plan.schedule, plan.mesh.pp, plan.chunkStage, plan.accumulation);
}

ExposedSeconds expose(const Cluster &cluster, const StageSeconds &stage,
                      const PipelineSchedule &schedule) {
  ExposedSeconds out;
  const double accumulation = double(schedule.accumulation);
  double roomForward = cluster.overlapFraction * stage.forward;
  double roomBackward = cluster.overlapFraction * (stage.backward + stage.recompute);
  double roomWeight = cluster.overlapFraction * (stage.weight + stage.recomputeWeight);
  double wantBackward = stage.gatherBackward + stage.reduceMicro;
  double dataForward =
      stage.firstGatherForward + cluster.exposedSeconds(stage.gatherForward, roomForward);
  double dataBackward = stage.firstGatherBackward + stage.lastReduceMicro +
                        cluster.exposedSeconds(wantBackward, roomBackward);
  double dataWeight = cluster.exposedSeconds(stage.dataWeight, roomWeight);
  double roomLast = schedule.reducesInBackward() ? std::max(0.0, roomBackward - wantBackward) +
                                                       std::max(0.0, roomWeight - stage.dataWeight)
                                                 : 0;
  const double kernelsBackward =
      stage.backward + stage.recompute + stage.weight + stage.recomputeWeight;
  double roomLater = 0;
  if (cluster.executor.isOwn())
    roomLater = std::max(0.0, roomBackward - wantBackward);
  else if (schedule.pipeline.numStages == 1)
    roomLater = std::max(0.0, cluster.executor.lastBackward * kernelsBackward - wantBackward -
                                  stage.dataWeight);
  double dataLast = cluster.exposedSeconds(stage.reduceStep, roomLast) +
                    cluster.exposedSeconds(stage.reduceLast, roomLater) + stage.lastReduceStep;

  out.forward = stage.forward + stage.operandsForward + dataForward + stage.hostForward;
  out.backward =
      stage.backward + stage.recompute + stage.operandsBackward + dataBackward + stage.hostBackward;
  out.weight =
      stage.weight + stage.recomputeWeight + stage.operandsWeight + dataWeight + stage.hostWeight;
  auto addWait = [](double launches, double &seconds, double &wait) {
    wait = std::max(0.0, launches - seconds);
    seconds += wait;
  };
  addWait(stage.launchForward, out.forward, out.waitForward);
  addWait(stage.launchBackward, out.backward, out.waitBackward);
  addWait(stage.launchWeight, out.weight, out.waitWeight);
  // The host waits for messages, and the device for the host.
  out.forward += stage.messageForward;
  out.backward += stage.messageBackward;
  out.data = dataForward + dataBackward + dataWeight;
  out.dataStep = dataLast + stage.parameterStep;
  out.stepEnd = out.dataStep + stage.updateStep + stage.hostStep;
  out.host =
      accumulation * (stage.hostForward + stage.hostBackward + stage.hostWeight) + stage.hostStep;
  out.hidden = accumulation *
                   (std::min(stage.gatherForward, roomForward) +
                    std::min(wantBackward, roomBackward) + std::min(stage.dataWeight, roomWeight)) +
               std::min(stage.reduceStep, roomLast) + std::min(stage.reduceLast, roomLater);
  return out;
}

/// Divides `seconds` among the activities of the slowest stage; the rest is waiting.
static TimeSplit splitOf(const StageSeconds &stage, const ExposedSeconds &exposed,
                         int64_t accumulation, double seconds) {
  double a = double(accumulation);
  TimeSplit split;
  split.compute = a * (stage.forward + stage.backward + stage.weight);
  split.recompute = a * (stage.recompute + stage.recomputeWeight);
  split.operands = a * (stage.operandsForward + stage.operandsBackward + stage.operandsWeight);
  split.data = a * exposed.data + exposed.dataStep;
  split.update = stage.updateStep;
  split.host = exposed.host;
  split.launches = a * exposed.waits();
  split.hiddenData = exposed.hidden;
  // Rounding may give a slightly negative value.
  split.pipeline = std::max(0.0, seconds - split.total());
  return split;
}

namespace {

/// The chunks of each stage, added up.
struct Stages {
  std::vector<StageSeconds> seconds;
  std::vector<ExposedSeconds> exposed;
  int slowest = 0;
  double end = 0; // the longest end of step

  Stages(const StageDevices &devices, const std::vector<StageSeconds> &chunks,
         const PipelineSchedule &schedule)
      : seconds(schedule.pipeline.numStages), exposed(schedule.pipeline.numStages) {
    assert(chunks.size() == schedule.pipeline.chunkStage.size() && "every chunk has its seconds");
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
      seconds[schedule.pipeline.chunkStage[chunk]] += chunks[chunk];
    auto busy = [&](size_t s) {
      return double(schedule.accumulation) * exposed[s].microBatch() + exposed[s].stepEnd;
    };
    double idle = 0; // of the stage, after its last backward
    for (size_t s = 0; s < seconds.size(); ++s) {
      exposed[s] = expose(devices.of(int(s)), seconds[s], schedule);
      if (devices.of(int(s)).executor.isOwn() && schedule.endsWithFirstChunks()) {
        hideReductions(seconds[s], idle, exposed[s]);
        idle += expose(devices.of(int(s)), chunks[s], schedule).backward;
      }
      end = std::max(end, exposed[s].stepEnd);
      if (busy(s) > busy(size_t(slowest)))
        slowest = int(s);
    }
  }

  /// Hides the reductions of an update behind up to `idle` seconds before the step's end.
  static void hideReductions(const StageSeconds &stage, double idle, ExposedSeconds &exposed) {
    const double hidden = std::min(idle, stage.reduceStep);
    exposed.stepEnd -= hidden;
    exposed.dataStep -= hidden;
    exposed.hidden += hidden;
  }

  StepTime time(double total, int64_t accumulation) const {
    StepTime time;
    time.seconds = total;
    time.slowestStage = slowest;
    time.split = splitOf(seconds[slowest], exposed[slowest], accumulation, total);
    return time;
  }
};

} // namespace

StepTime stepTime(const StageDevices &devices, const std::vector<StageSeconds> &chunks,
                  const PipelineSchedule &schedule) {
  Stages stages(devices, chunks, schedule);
  double longest = 0, sends = 0, bubble = 0;
  size_t longestStage = 0;
  double perStage = double(chunks.size()) / double(stages.seconds.size());
  for (const StageSeconds &chunk : chunks)
    sends += (chunk.sendForward + chunk.sendBackward) / perStage;
  for (size_t s = 0; s < stages.exposed.size(); ++s)
    if (stages.exposed[s].microBatch() > longest) {
      longest = stages.exposed[s].microBatch();
      longestStage = s;
    }
  for (size_t s = 0; s < stages.exposed.size(); ++s) {
    const ExposedSeconds &stage = stages.exposed[s];
    if (s == longestStage)
      continue;
    bubble += schedule::bubbleSeconds(schedule.kind, {stage.forward, stage.backward, stage.weight},
                                      perStage);
  }
  double a = double(schedule.accumulation);
  return stages.time(a * longest + bubble + sends + stages.end, schedule.accumulation);
}

std::vector<schedule::ChunkTimes> chunkTimes(const StageDevices &devices,
                                             const std::vector<StageSeconds> &chunks,
                                             const PipelineSchedule &schedule) {
  std::vector<schedule::ChunkTimes> times;
  const double least = chunks.front().sendForward;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const Cluster &cluster = devices.of(schedule.pipeline.chunkStage[chunk]);
    ExposedSeconds exposed = expose(cluster, chunks[chunk], schedule);
    times.push_back({exposed.forward, exposed.backward, exposed.weight,
                     std::max(least, chunks[chunk].sendForward),
                     std::max(least, chunks[chunk].sendBackward)});
  }
  return times;
}

/// Returns the events of one stage with one chunk: micro-batch i begins at i times the seconds of a
/// micro-batch, as in the closed form.
static schedule::Timeline withoutPipeline(const schedule::ChunkTimes &times, int64_t accumulation) {
  using Kind = schedule::Action::Kind;
  schedule::Timeline timeline;
  const double both = times.forwardSeconds + times.backwardSeconds + times.weightSeconds;
  std::vector<schedule::Event> &events = timeline.stages.emplace_back();
  for (int64_t i = 0; i < accumulation; ++i) {
    const double begin = double(i) * both, middle = begin + times.forwardSeconds;
    events.push_back({{Kind::Forward, i, 0}, begin, middle});
    events.push_back({{Kind::Backward, i, 0}, middle, double(i + 1) * both});
  }
  timeline.makespanSeconds = double(accumulation) * both;
  return timeline;
}

StepTime simulatedStepTime(const StageDevices &devices, const std::vector<StageSeconds> &chunks,
                           const PipelineSchedule &schedule, StepTrace *trace) {
  const bool isPipeline = chunks.size() > 1;
  if (!isPipeline && !trace)
    return stepTime(devices, chunks, schedule);
  Stages stages(devices, chunks, schedule);
  const std::vector<schedule::ChunkTimes> times = chunkTimes(devices, chunks, schedule);
  StepTime time;
  if (isPipeline)
    time = stages.time(schedule::makespanSeconds(schedule.actions, schedule.pipeline, times,
                                                 schedule.accumulation) +
                           stages.end,
                       schedule.accumulation);
  else
    time = stepTime(devices, chunks, schedule);
  if (!trace)
    return time;
  trace->timeline = isPipeline ? schedule::simulate(schedule.kind, schedule.pipeline, times,
                                                    schedule.accumulation)
                               : withoutPipeline(times[0], schedule.accumulation);
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    trace->chunks.push_back(
        expose(devices.of(schedule.pipeline.chunkStage[chunk]), chunks[chunk], schedule));
  trace->stages = stages.exposed;
  trace->times = times;
  trace->seconds = time.seconds;
  trace->updateBegin = trace->timeline.makespanSeconds;
  return time;
}

} // namespace tbc::planner
