//===- Schedule.h - Pipeline schedules as generators -----------------------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (how long, how much memory), the compiler
// and the runtime (in which order).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_SCHEDULE_SCHEDULE_H
#define TBC_RUNTIME_SCHEDULE_SCHEDULE_H

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tbc::schedule {

enum class ScheduleKind {
  /// All forwards, then all backwards, both in ascending order of micro-batches.
  /// Source: Huang et al., "GPipe", NeurIPS 2019.
  GPipe,
  /// numStages - stage - 1 forwards, then one forward and one backward in turns, then the backwards
  /// left.
  /// Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
  /// Megatron-LM", SC 2021, section 2.2 (PipeDream-Flush).
  OneFOneB,
};

/// "gpipe" or "1f1b".
std::string_view name(ScheduleKind kind);
/// The inverse of `name`; nothing for any other text.
std::optional<ScheduleKind> parseScheduleKind(std::string_view text);

/// One block of a stage, run for one micro-batch. Update runs once per step (microBatch 0).
struct Action {
  enum class Kind { Forward, Backward, Update };
  Kind kind = Kind::Forward;
  int64_t microBatch = 0;
  bool operator==(const Action &o) const { return kind == o.kind && microBatch == o.microBatch; }
};

std::string_view name(Action::Kind kind);

/// What stage `stage` of `numStages` does in one step, in order: every forward and every backward
/// once, then the update. Requires 0 <= stage < numStages and numMicroBatches >= 1.
std::vector<Action> schedule(ScheduleKind kind, int numStages, int64_t numMicroBatches, int stage);

/// The largest number of micro-batches whose forward has begun on `stage` and whose backward has
/// not ended: how many copies of its residuals the stage holds.
int64_t maxInFlight(ScheduleKind kind, int numStages, int64_t numMicroBatches, int stage);

/// How long a stage takes for one micro-batch.
struct StageTimes {
  double forwardSeconds = 0;
  double backwardSeconds = 0;
};

struct Event {
  Action action;
  double startSeconds = 0;
  double endSeconds = 0;
};

/// Who does what when; one list of events per stage, without the update.
struct Timeline {
  std::vector<std::vector<Event>> stages;
  double makespanSeconds = 0;
  /// The time stage `stage` idles between the step's begin and its end.
  double bubbleSeconds(int stage) const;
};

/// Runs the schedule: an action begins when its stage is free and its input is there (a forward:
/// the forward of the stage before; a backward: the backward of the stage after, or on the last
/// stage its own forward), which takes `transferSeconds` from stage to stage and keeps neither
/// stage busy. Stage i of `times.size()` takes times[i]. O(stages * micro-batches).
Timeline simulate(ScheduleKind kind, const std::vector<StageTimes> &times, int64_t numMicroBatches,
                  double transferSeconds = 0);

/// simulate(...).makespanSeconds without keeping the events.
double makespanSeconds(ScheduleKind kind, const std::vector<StageTimes> &times,
                       int64_t numMicroBatches, double transferSeconds = 0);

} // namespace tbc::schedule

#endif // TBC_RUNTIME_SCHEDULE_SCHEDULE_H
