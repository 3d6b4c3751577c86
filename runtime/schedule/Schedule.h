//===- Schedule.h - Pipeline schedules as generators -----------------------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (how long, how much memory), the compiler
// and the runtime (in which order).
//
// A *chunk* is a piece of the model, in the order of forward; a *stage* is a coordinate along the
// pipeline axis and runs one chunk or several (virtual stages). Which stage runs which chunk is
// data.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_SCHEDULE_SCHEDULE_H
#define TBC_RUNTIME_SCHEDULE_SCHEDULE_H

#include <cstdint>
#include <optional>
#include <string>
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
  /// 1F1B over several chunks per stage. Where chunk c lies on stage c mod p: groups of p
  /// micro-batches through chunk after chunk (same source, section 2.2, "Schedule with Interleaved
  /// Stages"). On any other placement: greedy, runtime/schedule/Greedy.h.
  Interleaved,
  /// The gradients of weights run apart from those of activations, later, where the stage would
  /// idle. One chunk per stage: ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024.
  /// Two chunks per stage there and back: ZB-V of Qi et al., "Pipeline Parallelism with
  /// Controllable Memory", NeurIPS 2024. On any other placement: greedy.
  ZeroBubble,
};

/// "gpipe", "1f1b", "interleaved", "zero-bubble".
std::string_view name(ScheduleKind kind);
/// The inverse of `name`; nothing for any other text.
std::optional<ScheduleKind> parseScheduleKind(std::string_view text);
/// All names, in the order of the kinds.
const std::vector<std::string> &scheduleNames();
/// Whether the backward of the kind is parted into activations' and weights' gradients.
bool splitsBackward(ScheduleKind kind);

/// Which stage runs which chunk.
struct Pipeline {
  int numStages = 1;
  std::vector<int> chunkStage = {0}; // by chunk

  int numChunks() const { return static_cast<int>(chunkStage.size()); }
  /// The chunks of a stage, ascending.
  std::vector<int> chunksOf(int stage) const;
  bool operator==(const Pipeline &o) const {
    return numStages == o.numStages && chunkStage == o.chunkStage;
  }

  /// Chunk s on stage s.
  static Pipeline plain(int numStages) { return loop(numStages, 1); }
  /// Chunk c on stage c mod numStages.
  static Pipeline loop(int numStages, int chunksPerStage);
  /// There and back: rounds of ascending and of descending stages in turns.
  static Pipeline vee(int numStages, int chunksPerStage);
};

/// Why the pipeline is none, or not one for `kind` with so many micro-batches; "" if it is.
std::string whyInvalid(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches);

/// One block of a stage, run for one micro-batch. Update runs once per step (microBatch 0).
struct Action {
  /// Backward: all of it, or where the schedule parts it what the stages before wait for. Weight:
  /// the rest of it.
  enum class Kind { Forward, Backward, Weight, Update };
  Kind kind = Kind::Forward;
  int64_t microBatch = 0;
  int chunk = 0; // which of the stage's own chunks: 0 is the first in the order of forward
  bool operator==(const Action &o) const {
    return kind == o.kind && microBatch == o.microBatch && chunk == o.chunk;
  }
};
inline constexpr int numActionKinds = 4;

/// "forward", "backward", "weight", "update".
std::string_view name(Action::Kind kind);

/// What `stage` does in one step, in order: for every chunk of it every forward, every backward and
/// (see splitsBackward) every weight part once, then the update. The order does not depend on how
/// long anything takes. Requires a valid pipeline and 0 <= stage < numStages.
std::vector<Action> schedule(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches,
                             int stage);

/// What every stage does: schedule() of each.
std::vector<std::vector<Action>> schedules(ScheduleKind kind, const Pipeline &pipeline,
                                           int64_t numMicroBatches);

/// How many micro-batches of a chunk a stage keeps something of.
struct InFlight {
  int64_t forward = 0;     // from the forward to the end of the backward
  int64_t untilWeight = 0; // from the forward to the end of the weight part
  int64_t weight = 0;      // from the backward to the end of the weight part
  bool operator==(const InFlight &o) const {
    return forward == o.forward && untilWeight == o.untilWeight && weight == o.weight;
  }
};

/// By chunk of the stage, when most is kept: at the action where the sum of untilWeight over the
/// chunks is largest, the first such. (Without weight parts untilWeight = forward, weight = 0.)
std::vector<InFlight> mostInFlight(const std::vector<Action> &actions, int numChunks);

/// By moment and by chunk of the stage, what may be the most bytes, whatever a chunk keeps from
/// forward to backward and from backward to weight part: mostInFlight() first. With weight parts
/// there follow the other corners of the convex hull of all moments, forward against weight summed
/// over the chunks: a moment with fewer micro-batches may hold more where cotangents are large.
using Moments = std::vector<std::vector<InFlight>>;
Moments fullestMoments(const std::vector<Action> &actions, int numChunks);

/// How long a chunk takes for one micro-batch.
struct ChunkTimes {
  double forwardSeconds = 0;
  double backwardSeconds = 0; // of what Action::Kind::Backward runs
  double weightSeconds = 0;   // of what Action::Kind::Weight runs
  /// To the chunk after it and to the one before it; nothing where that lies on the same stage.
  double sendForwardSeconds = 0, sendBackwardSeconds = 0;
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
/// the forward of the chunk before; a backward: the backward of the chunk after, or of the last
/// chunk its own forward; a weight part: its own backward). Sends keep no stage busy. times[c] is
/// that of chunk c. O(actions).
Timeline simulate(ScheduleKind kind, const Pipeline &pipeline, const std::vector<ChunkTimes> &times,
                  int64_t numMicroBatches);

/// simulate(...).makespanSeconds without keeping the events. `actions`: schedules(...) of it.
double makespanSeconds(const std::vector<std::vector<Action>> &actions, const Pipeline &pipeline,
                       const std::vector<ChunkTimes> &times, int64_t numMicroBatches);

} // namespace tbc::schedule

#endif // TBC_RUNTIME_SCHEDULE_SCHEDULE_H
