//===- Schedule.h - Pipeline schedules as generators -----------------------===//
//
// Part of tbc. Plain C++ (std only). Used by the planner (time, memory), the compiler and the
// runtime (order).
//
// A *chunk* is a piece of the model, in the order of forward; a *stage* is a coordinate along the
// pipeline axis and runs one chunk or several (virtual stages). The mapping from chunks to stages
// is data.
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
  /// numStages - stage - 1 forwards, then one forward and one backward in turns, then
  /// the remaining backwards. Source: Narayanan et al., "Efficient Large-Scale Language
  /// Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2
  /// (PipeDream-Flush).
  OneFOneB,
  /// 1F1B over several chunks per stage. If chunk c lies on stage c mod p (looped): groups of p
  /// micro-batches through chunk after chunk (same source, section 2.2, "Schedule with Interleaved
  /// Stages"). On any other placement: greedy, runtime/schedule/Greedy.h.
  Interleaved,
  /// Splits backward into dgrad and wgrad; wgrad runs later, where the stage would idle. One chunk
  /// per stage: ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024. Two chunks per
  /// stage, V-shaped: ZB-V of Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS
  /// 2024. On any other placement: greedy.
  ZeroBubble,
};

/// "gpipe", "1f1b", "interleaved", "zero-bubble".
std::string_view name(ScheduleKind kind);
/// The inverse of `name`; nullopt for any other text.
std::optional<ScheduleKind> parseScheduleKind(std::string_view text);
/// All kinds, from simple to complicated, and their names in the same order.
const std::vector<ScheduleKind> &scheduleKinds();
const std::vector<std::string> &scheduleNames();
/// Whether the kind splits backward into dgrad and wgrad.
bool splitsBackward(ScheduleKind kind);

/// The order of a step without a pipeline: forward and backward of each micro-batch in turn.
inline constexpr ScheduleKind kindWithoutPipeline = ScheduleKind::OneFOneB;

/// How many chunks each stage may have.
enum class ChunkRule { One, Several, Any };
ChunkRule chunkRule(ScheduleKind kind);
/// The names of the schedules with several chunks per stage, for messages. Example: "interleaved
/// or zero-bubble" for "or".
std::string schedulesOfSeveralChunks(std::string_view conjunction);
/// Whether several chunks per stage are V-shaped unless the user names a placement.
bool prefersVee(ScheduleKind kind);

/// Chunks per stage, looped or V-shaped.
struct Layout {
  int chunksPerStage = 1;
  bool isVee = false;
};
/// Whether a search tries the kind without being asked for it. GPipe: no, because 1F1B takes as
/// long and holds less.
bool isSearched(ScheduleKind kind);
/// The layouts that a search tries. Example: zero-bubble has one chunk, and two V-shaped chunks.
const std::vector<Layout> &searchedLayouts(ScheduleKind kind);
/// The least number of micro-batches with which the schedule fills, runs steadily and drains.
/// Example: 1F1B on 4 stages: 5.
int64_t steadyMicroBatches(ScheduleKind kind, int64_t numStages);

/// The mapping from chunks to stages. Example: {2, {0, 1, 1, 0}} is V-shaped.
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
  /// V-shaped: rounds of ascending and of descending stages in turns.
  static Pipeline vee(int numStages, int chunksPerStage);
};

/// Why the pipeline is invalid for `kind` and this number of micro-batches; "" if it is valid.
std::string whyInvalid(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches);

/// One block of a stage, run for one micro-batch. Update runs once per step (microBatch 0).
struct Action {
  /// Backward: all of it, or dgrad if the schedule splits it. Weight: wgrad. LastBackward: in a
  /// Program, the backward of the last micro-batch where it has a block of its own; a schedule has
  /// a Backward in its place.
  enum class Kind { Forward, Backward, Weight, Update, LastBackward };
  Kind kind = Kind::Forward;
  int64_t microBatch = 0;
  int chunk = 0; // index among the stage's chunks, in forward order
  bool operator==(const Action &o) const {
    return kind == o.kind && microBatch == o.microBatch && chunk == o.chunk;
  }
};
inline constexpr int numActionKinds = 5;

/// "forward", "backward", "weight", "update", "last_backward".
std::string_view name(Action::Kind kind);

/// The actions of `stage` in one step, in order: for each of its chunks every forward, every
/// backward and (see splitsBackward) every wgrad once, then the update. The order does not depend
/// on durations. Requires a valid pipeline and 0 <= stage < numStages.
std::vector<Action> schedule(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches,
                             int stage);

/// The number of micro-batches from which on a stage's fullestMoments() are the same; nullopt if
/// each micro-batch adds to them (GPipe). Twice the stages where a published order exists, else an
/// estimate of 4 per chunk. Example: 1F1B on 4 stages: 8.
std::optional<int64_t> microBatchesOfPeak(ScheduleKind kind, const Pipeline &pipeline);

/// The actions of every stage: schedule() of each.
std::vector<std::vector<Action>> schedules(ScheduleKind kind, const Pipeline &pipeline,
                                           int64_t numMicroBatches);

/// The micro-batches of a chunk in flight on a stage.
struct InFlight {
  int64_t forward = 0;     // from the forward to the end of the backward
  int64_t untilWeight = 0; // from the forward to the end of the wgrad
  int64_t weight = 0;      // from the backward to the end of the wgrad
  bool operator==(const InFlight &o) const {
    return forward == o.forward && untilWeight == o.untilWeight && weight == o.weight;
  }
};

/// By chunk of the stage, at the first action with the largest sum of untilWeight over the chunks.
/// (Without wgrad untilWeight = forward, weight = 0.) Example: stage 0 of 4 in 1F1B: 4.
std::vector<InFlight> mostInFlight(const std::vector<Action> &actions, int numChunks);

/// By moment and by chunk of the stage, the candidates for the most bytes, for any bytes kept from
/// forward to backward and from backward to wgrad: mostInFlight() first. With wgrad the other
/// corners of the convex hull of all moments follow, forward against weight, summed over the
/// chunks: a moment with fewer micro-batches may hold more if cotangents are large.
using Moments = std::vector<std::vector<InFlight>>;
Moments fullestMoments(const std::vector<Action> &actions, int numChunks);

/// The seconds of a chunk for one micro-batch.
struct ChunkTimes {
  double forwardSeconds = 0;
  double backwardSeconds = 0; // of Action::Kind::Backward
  double weightSeconds = 0;   // of Action::Kind::Weight
  /// To the next chunk and to the previous one; 0 if it is on the same stage.
  double sendForwardSeconds = 0, sendBackwardSeconds = 0;
};

struct Event {
  Action action;
  double startSeconds = 0;
  double endSeconds = 0;
};

/// The events of each stage, without the update.
struct Timeline {
  std::vector<std::vector<Event>> stages;
  double makespanSeconds = 0;
  /// The time stage `stage` idles between the step's begin and its end.
  double bubbleSeconds(int stage) const;
};

/// Runs the schedule. An action begins when its stage is free and its input is there:
///
/// - forward: the forward of the chunk before;
/// - backward: the backward of the chunk after; for the last chunk its own forward;
/// - weight part: its own backward.
///
/// Sends keep no stage busy. times[c] belongs to chunk c. O(actions). Example: GPipe on 2 stages
/// with 2 micro-batches, 1 s forward and 2 s backward, without sends: 9 s.
Timeline simulate(ScheduleKind kind, const Pipeline &pipeline, const std::vector<ChunkTimes> &times,
                  int64_t numMicroBatches);

/// simulate(...).makespanSeconds without keeping the events. `actions`: schedules(...) of it.
double makespanSeconds(const std::vector<std::vector<Action>> &actions, const Pipeline &pipeline,
                       const std::vector<ChunkTimes> &times, int64_t numMicroBatches);

/// The closed form of the bubble: the part of one stage, other than the slowest one, with `stage`
/// the seconds of all its chunks for one micro-batch. The makespan is about the micro-batches times
/// the slowest stage, plus this for each other stage. Example: 1F1B with 1 s forward and 2 s
/// backward: 3 s. Sources: at each schedule in Rows.cpp.
double bubbleSeconds(ScheduleKind kind, const ChunkTimes &stage, double chunksPerStage);

/// Which divisions of a model into chunks a bound is for: all, or those with chunks of equal time
/// on each stage.
enum class Chunking { Any, Equal };

/// The part of each other stage's time for one micro-batch during which a stage waits for it at
/// least, in one step; nullopt if none is proven. Example: 1 for 1F1B.
std::optional<double> leastIdleShare(ScheduleKind kind, int64_t chunksPerStage, Chunking chunking);

struct PipelineSize {
  int64_t stages = 1, chunksPerStage = 1, numMicroBatches = 1;
};

/// A lower bound on the makespan, for any division of a model of `seconds` per micro-batch into
/// stages: pipelineLowerBound() with leastIdleShare(). Without that share, the bound of every
/// schedule, the larger of
/// - the mean work of a stage, seconds * numMicroBatches / stages;
/// - one micro-batch through all chunks: `seconds`, or half of it if wgrad is split off (wgrad is
///   at most half of the work).
double leastMakespan(ScheduleKind kind, double seconds, const PipelineSize &size,
                     Chunking chunking);

/// Returns a lower bound on any schedule of `stages` stages with `numMicroBatches` micro-batches of
/// `seconds` (all stages together). Stage s begins after one micro-batch passed the stages before
/// it and ends before it passed them back. So the step lasts at least A t_s + sum of t_i over i < s
/// for each s. The least maximum over all divisions of t is t / (1 - (1 - 1/A)^stages). If a stage
/// waits only for the share `waits` of each t_i, it is waits t / (1 - (1 - waits/A)^stages).
/// Example: t = 4, A = 4 and 2 stages give 4 / (1 - 0.5625) = 9.14.
double pipelineLowerBound(double seconds, int64_t stages, int64_t numMicroBatches,
                          double waits = 1);

} // namespace tbc::schedule

#endif // TBC_RUNTIME_SCHEDULE_SCHEDULE_H
