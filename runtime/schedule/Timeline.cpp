//===- Timeline.cpp - The duration of a schedule --------------------------===//

#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace tbc::schedule {

using Kind = Action::Kind;

double Timeline::bubbleSeconds(int stage) const {
  double busySeconds = 0;
  for (const Event &event : stages[stage])
    busySeconds += event.endSeconds - event.startSeconds;
  return makespanSeconds - busySeconds;
}

namespace {
/// The state of a simulation: when each forward and backward ended, or `notYet`.
class Simulation {
public:
  Simulation(const Pipeline &pipeline, const std::vector<ChunkTimes> &times,
             int64_t numMicroBatches)
      : pipeline(pipeline), times(times), numMicroBatches(size_t(numMicroBatches)),
        freeSeconds(pipeline.numStages, 0.0), chunks(pipeline.numStages),
        forwardEnd(times.size() * this->numMicroBatches, notYet), backwardEnd(forwardEnd) {
    for (int stage = 0; stage < pipeline.numStages; ++stage)
      chunks[stage] = pipeline.chunksOf(stage);
  }

  /// Runs `action` on `stage` if its input has been computed; false otherwise.
  bool run(int stage, const Action &action, Event &event) {
    int chunk = chunks[stage][action.chunk];
    double readySeconds = inputReadySeconds(chunk, action);
    if (readySeconds == notYet)
      return false;
    const ChunkTimes &of = times[chunk];
    double start = std::max(readySeconds, freeSeconds[stage]);
    double end = start + (action.kind == Kind::Forward    ? of.forwardSeconds
                          : action.kind == Kind::Backward ? of.backwardSeconds
                                                          : of.weightSeconds);
    freeSeconds[stage] = end;
    if (action.kind != Kind::Weight)
      (action.kind == Kind::Forward ? forwardEnd : backwardEnd)[at(chunk, action)] = end;
    event = {action, start, end};
    return true;
  }

  double makespanSeconds() const {
    return *std::max_element(freeSeconds.begin(), freeSeconds.end());
  }

private:
  static constexpr double notYet = std::numeric_limits<double>::infinity();

  size_t at(int chunk, const Action &action) const {
    return size_t(chunk) * numMicroBatches + size_t(action.microBatch);
  }

  double inputReadySeconds(int chunk, const Action &action) const {
    int last = pipeline.numChunks() - 1;
    auto sent = [&](int from, double seconds) {
      return pipeline.chunkStage[from] == pipeline.chunkStage[chunk] ? 0 : seconds;
    };
    if (action.kind == Kind::Weight)
      return backwardEnd[at(chunk, action)];
    if (action.kind == Kind::Forward)
      return chunk == 0 ? 0
                        : forwardEnd[at(chunk - 1, action)] +
                              sent(chunk - 1, times[chunk - 1].sendForwardSeconds);
    if (chunk == last)
      return forwardEnd[at(chunk, action)];
    return backwardEnd[at(chunk + 1, action)] +
           sent(chunk + 1, times[chunk + 1].sendBackwardSeconds);
  }

  const Pipeline &pipeline;
  const std::vector<ChunkTimes> &times;
  size_t numMicroBatches;
  std::vector<double> freeSeconds;
  std::vector<std::vector<int>> chunks; // by stage
  std::vector<double> forwardEnd, backwardEnd;
};
} // namespace

/// Runs all actions, each as soon as it can run, and passes the events of a stage to `record` in
/// their order. Returns the makespan in seconds.
template <typename RecordFn>
static double runAll(const std::vector<std::vector<Action>> &actions, const Pipeline &pipeline,
                     const std::vector<ChunkTimes> &times, int64_t numMicroBatches,
                     RecordFn record) {
  assert(int(times.size()) == pipeline.numChunks() && "every chunk takes some time");
  Simulation simulation(pipeline, times, numMicroBatches);
  std::vector<size_t> next(pipeline.numStages, 0);
  bool progress = true;
  while (progress) {
    progress = false;
    for (int stage = 0; stage < pipeline.numStages; ++stage) {
      // The last action is the update.
      for (Event event; next[stage] + 1 < actions[stage].size() &&
                        simulation.run(stage, actions[stage][next[stage]], event);
           ++next[stage]) {
        record(stage, event);
        progress = true;
      }
    }
  }
  for (int stage = 0; stage < pipeline.numStages; ++stage)
    assert(next[stage] + 1 == actions[stage].size() && "a generated schedule cannot deadlock");
  return simulation.makespanSeconds();
}

Timeline simulate(ScheduleKind kind, const Pipeline &pipeline, const std::vector<ChunkTimes> &times,
                  int64_t numMicroBatches) {
  Timeline timeline;
  timeline.stages.resize(pipeline.numStages);
  timeline.makespanSeconds =
      runAll(schedules(kind, pipeline, numMicroBatches), pipeline, times, numMicroBatches,
             [&](int stage, const Event &event) { timeline.stages[stage].push_back(event); });
  return timeline;
}

double makespanSeconds(const std::vector<std::vector<Action>> &actions, const Pipeline &pipeline,
                       const std::vector<ChunkTimes> &times, int64_t numMicroBatches) {
  return runAll(actions, pipeline, times, numMicroBatches, [](int, const Event &) {});
}

} // namespace tbc::schedule
