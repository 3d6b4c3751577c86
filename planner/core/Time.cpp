//===- Time.cpp - From the seconds of its parts to the seconds of a step ---===//

#include "planner/core/Time.h"
#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace tbc::planner {

ExposedSeconds expose(const Cluster &cluster, const StageSeconds &stage, int64_t accumulation) {
  ExposedSeconds out;
  double roomForward = cluster.overlapFraction * stage.forward;
  double roomBackward = cluster.overlapFraction * (stage.backward + stage.recompute);
  double wantBackward = stage.gatherBackward + stage.reduceMicro;
  out.dataForward = std::max(0.0, stage.gatherForward - roomForward);
  out.dataBackward = std::max(0.0, wantBackward - roomBackward);
  double roomLast = std::max(0.0, roomBackward - wantBackward);
  double dataLast = std::max(0.0, stage.reduceStep - roomLast);

  out.forward = stage.forward + stage.operandsForward + out.dataForward;
  out.backward = stage.backward + stage.recompute + stage.operandsBackward + out.dataBackward;
  out.dataStep = dataLast + stage.parameterStep;
  out.stepEnd = out.dataStep + stage.updateStep;
  out.hidden = double(accumulation) *
                   (stage.gatherForward - out.dataForward + wantBackward - out.dataBackward) +
               stage.reduceStep - dataLast;
  return out;
}

/// Divides `seconds` among what the slowest stage spends it on; what is left is waiting.
static TimeSplit splitOf(const StageSeconds &stage, const ExposedSeconds &exposed,
                         int64_t accumulation, double seconds) {
  double a = double(accumulation);
  TimeSplit split;
  split.compute = a * (stage.forward + stage.backward);
  split.recompute = a * stage.recompute;
  split.operands = a * (stage.operandsForward + stage.operandsBackward);
  split.data = a * (exposed.dataForward + exposed.dataBackward) + exposed.dataStep;
  split.update = stage.updateStep;
  split.hiddenData = exposed.hidden;
  // Rounding may leave a hair less than nothing.
  split.pipeline = std::max(0.0, seconds - split.total());
  return split;
}

static int slowestOf(const std::vector<ExposedSeconds> &stages, int64_t accumulation) {
  int slowest = 0;
  auto busy = [&](const ExposedSeconds &s) {
    return double(accumulation) * (s.forward + s.backward) + s.stepEnd;
  };
  for (size_t s = 1; s < stages.size(); ++s)
    if (busy(stages[s]) > busy(stages[slowest]))
      slowest = int(s);
  return slowest;
}

StepTime stepTime(const Cluster &cluster, const std::vector<StageSeconds> &stages,
                  int64_t accumulation) {
  std::vector<ExposedSeconds> exposed;
  double sum = 0, longest = 0, end = 0;
  for (const StageSeconds &stage : stages) {
    exposed.push_back(expose(cluster, stage, accumulation));
    double both = exposed.back().forward + exposed.back().backward;
    sum += both + stage.sendForward + stage.sendBackward;
    longest = std::max(longest, both);
    end = std::max(end, exposed.back().stepEnd);
  }
  StepTime time;
  time.seconds = sum + double(accumulation - 1) * longest + end;
  time.slowestStage = slowestOf(exposed, accumulation);
  time.split =
      splitOf(stages[time.slowestStage], exposed[time.slowestStage], accumulation, time.seconds);
  return time;
}

StepTime simulatedStepTime(const Cluster &cluster, const std::vector<StageSeconds> &stages,
                           int64_t accumulation, const std::string &schedule) {
  if (stages.size() == 1)
    return stepTime(cluster, stages, accumulation);
  auto kind = schedule::parseScheduleKind(schedule);
  assert(kind && "schedules are checked where they are read");
  std::vector<ExposedSeconds> exposed;
  std::vector<schedule::StageTimes> times;
  double end = 0, send = 0;
  for (const StageSeconds &stage : stages) {
    exposed.push_back(expose(cluster, stage, accumulation));
    times.push_back({exposed.back().forward, exposed.back().backward});
    end = std::max(end, exposed.back().stepEnd);
    send = std::max({send, stage.sendForward, stage.sendBackward});
  }
  StepTime time;
  time.seconds = schedule::makespanSeconds(*kind, times, accumulation, send) + end;
  time.slowestStage = slowestOf(exposed, accumulation);
  time.split =
      splitOf(stages[time.slowestStage], exposed[time.slowestStage], accumulation, time.seconds);
  return time;
}

int64_t microBatchesInFlight(const std::string &schedule, int64_t stages, int64_t stage,
                             int64_t accumulation) {
  if (stages == 1)
    return 1;
  auto kind = schedule::parseScheduleKind(schedule);
  assert(kind && "schedules are checked where they are read");
  return schedule::maxInFlight(*kind, int(stages), accumulation, int(stage));
}

double pipelineLowerBound(double seconds, int64_t stages, int64_t accumulation) {
  double rest = std::pow(1 - 1 / double(accumulation), double(stages));
  return seconds / (1 - rest);
}

} // namespace tbc::planner
