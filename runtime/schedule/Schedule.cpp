//===- Schedule.cpp - Pipeline schedules as generators ---------------------===//

#include "runtime/schedule/Schedule.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace tbc::schedule {

std::string_view name(ScheduleKind kind) { return kind == ScheduleKind::GPipe ? "gpipe" : "1f1b"; }

std::optional<ScheduleKind> parseScheduleKind(std::string_view text) {
  for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
    if (name(kind) == text)
      return kind;
  }
  return std::nullopt;
}

std::string_view name(Action::Kind kind) {
  switch (kind) {
  case Action::Kind::Forward:
    return "forward";
  case Action::Kind::Backward:
    return "backward";
  case Action::Kind::Update:
    return "update";
  }
  return "";
}

/// The forwards that a stage runs before its first backward, less the one that is followed by it.
static int64_t numWarmUp(ScheduleKind kind, int numStages, int64_t numMicroBatches, int stage) {
  assert(stage >= 0 && stage < numStages && numMicroBatches >= 1 && "no such stage or micro-batch");
  if (kind == ScheduleKind::GPipe)
    return numMicroBatches - 1;
  return std::min<int64_t>(numMicroBatches - 1, numStages - stage - 1);
}

std::vector<Action> schedule(ScheduleKind kind, int numStages, int64_t numMicroBatches, int stage) {
  int64_t warmUp = numWarmUp(kind, numStages, numMicroBatches, stage);
  std::vector<Action> actions;
  actions.reserve(2 * numMicroBatches + 1);
  for (int64_t i = 0; i < warmUp; ++i)
    actions.push_back({Action::Kind::Forward, i});
  for (int64_t i = warmUp; i < numMicroBatches; ++i) {
    actions.push_back({Action::Kind::Forward, i});
    actions.push_back({Action::Kind::Backward, i - warmUp});
  }
  for (int64_t i = numMicroBatches - warmUp; i < numMicroBatches; ++i)
    actions.push_back({Action::Kind::Backward, i});
  actions.push_back({Action::Kind::Update, 0});
  return actions;
}

int64_t maxInFlight(ScheduleKind kind, int numStages, int64_t numMicroBatches, int stage) {
  return numWarmUp(kind, numStages, numMicroBatches, stage) + 1;
}

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
  Simulation(const std::vector<StageTimes> &times, int64_t numMicroBatches, double transferSeconds)
      : times(times), transferSeconds(transferSeconds), freeSeconds(times.size(), 0.0),
        forwardEnd(times.size(), std::vector<double>(numMicroBatches, notYet)),
        backwardEnd(forwardEnd) {}

  /// Runs `action` on `stage` if its input has been computed; nothing otherwise.
  std::optional<Event> run(int stage, const Action &action) {
    bool isForward = action.kind == Action::Kind::Forward;
    double readySeconds = inputReadySeconds(stage, action);
    if (readySeconds == notYet)
      return std::nullopt;
    double start = std::max(readySeconds, freeSeconds[stage]);
    double end = start + (isForward ? times[stage].forwardSeconds : times[stage].backwardSeconds);
    freeSeconds[stage] = end;
    (isForward ? forwardEnd : backwardEnd)[stage][action.microBatch] = end;
    return Event{action, start, end};
  }

  double makespanSeconds() const {
    return *std::max_element(freeSeconds.begin(), freeSeconds.end());
  }

private:
  static constexpr double notYet = std::numeric_limits<double>::infinity();

  double inputReadySeconds(int stage, const Action &action) const {
    int last = static_cast<int>(times.size()) - 1;
    if (action.kind == Action::Kind::Forward)
      return stage == 0 ? 0 : forwardEnd[stage - 1][action.microBatch] + transferSeconds;
    if (stage == last)
      return forwardEnd[stage][action.microBatch];
    return backwardEnd[stage + 1][action.microBatch] + transferSeconds;
  }

  const std::vector<StageTimes> &times;
  double transferSeconds;
  std::vector<double> freeSeconds;
  std::vector<std::vector<double>> forwardEnd, backwardEnd;
};
} // namespace

/// Runs all actions, each as soon as it can be computed, and hands the events of a stage to
/// `record` in their order. Returns the makespan.
template <typename RecordFn>
static double runAll(ScheduleKind kind, const std::vector<StageTimes> &times,
                     int64_t numMicroBatches, double transferSeconds, RecordFn record) {
  int numStages = static_cast<int>(times.size());
  assert(numStages >= 1 && "a pipeline needs a stage");
  std::vector<std::vector<Action>> actions;
  for (int stage = 0; stage < numStages; ++stage) {
    actions.push_back(schedule(kind, numStages, numMicroBatches, stage));
    actions.back().pop_back(); // the update
  }

  Simulation simulation(times, numMicroBatches, transferSeconds);
  std::vector<size_t> next(numStages, 0);
  bool progress = true;
  while (progress) {
    progress = false;
    for (int stage = 0; stage < numStages; ++stage) {
      while (next[stage] < actions[stage].size()) {
        std::optional<Event> event = simulation.run(stage, actions[stage][next[stage]]);
        if (!event)
          break;
        record(stage, *event);
        ++next[stage];
        progress = true;
      }
    }
  }
  for (int stage = 0; stage < numStages; ++stage)
    assert(next[stage] == actions[stage].size() && "a generated schedule cannot deadlock");
  return simulation.makespanSeconds();
}

Timeline simulate(ScheduleKind kind, const std::vector<StageTimes> &times, int64_t numMicroBatches,
                  double transferSeconds) {
  Timeline timeline;
  timeline.stages.resize(times.size());
  timeline.makespanSeconds =
      runAll(kind, times, numMicroBatches, transferSeconds,
             [&](int stage, const Event &event) { timeline.stages[stage].push_back(event); });
  return timeline;
}

double makespanSeconds(ScheduleKind kind, const std::vector<StageTimes> &times,
                       int64_t numMicroBatches, double transferSeconds) {
  return runAll(kind, times, numMicroBatches, transferSeconds, [](int, const Event &) {});
}

} // namespace tbc::schedule
