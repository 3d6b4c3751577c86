//===- Schedule.cpp - Pipeline schedules as generators ---------------------===//

#include "runtime/schedule/Schedule.h"
#include "runtime/schedule/Greedy.h"
#include "runtime/schedule/Row.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>

namespace tbc::schedule {

using Kind = Action::Kind;

static const Row &row(ScheduleKind kind) {
  const Row *row = findRow(kind);
  assert(row && "every kind has a row");
  return *row;
}

const std::vector<std::string> &scheduleNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (ScheduleKind kind : scheduleKinds())
      all.emplace_back(name(kind));
    return all;
  }();
  return names;
}

const std::vector<ScheduleKind> &scheduleKinds() {
  static const std::vector<ScheduleKind> kinds = [] {
    std::vector<ScheduleKind> all;
    for (int kind = 0; findRow(ScheduleKind(kind)); ++kind)
      all.push_back(ScheduleKind(kind));
    return all;
  }();
  return kinds;
}

std::string_view name(ScheduleKind kind) { return row(kind).name; }

std::optional<ScheduleKind> parseScheduleKind(std::string_view text) {
  for (ScheduleKind kind : scheduleKinds())
    if (name(kind) == text)
      return kind;
  return std::nullopt;
}

bool splitsBackward(ScheduleKind kind) { return row(kind).splitsBackward; }
ChunkRule chunkRule(ScheduleKind kind) { return row(kind).chunks; }
bool prefersVee(ScheduleKind kind) { return row(kind).prefersVee; }
bool isSearched(ScheduleKind kind) { return row(kind).isSearched; }
const std::vector<Layout> &searchedLayouts(ScheduleKind kind) { return row(kind).layouts; }
std::optional<int64_t> microBatchesOfPeak(ScheduleKind kind, const Pipeline &pipeline) {
  const Row &of = row(kind);
  if (of.keepsAllMicroBatches)
    return std::nullopt;
  return of.isGenerated(pipeline) ? 2 * int64_t(pipeline.numStages)
                                  : 4 * int64_t(pipeline.numChunks());
}

int64_t steadyMicroBatches(ScheduleKind kind, int64_t numStages) {
  return row(kind).steadyMicroBatches(numStages);
}

double bubbleSeconds(ScheduleKind kind, const ChunkTimes &stage, double chunksPerStage) {
  return row(kind).bubbleSeconds(stage, chunksPerStage);
}

std::optional<double> leastIdleShare(ScheduleKind kind, int64_t chunksPerStage, Chunking chunking) {
  const Row &of = row(kind);
  if (chunking == Chunking::Any)
    return of.idleShare;
  return of.idleShareOfEqualChunks
             ? std::optional(*of.idleShareOfEqualChunks / double(chunksPerStage))
             : std::nullopt;
}

double pipelineLowerBound(double seconds, int64_t stages, int64_t numMicroBatches, double waits) {
  double rest = std::pow(1 - waits / double(numMicroBatches), double(stages));
  return waits * seconds / (1 - rest);
}

double leastMakespan(ScheduleKind kind, double seconds, const PipelineSize &size,
                     Chunking chunking) {
  if (std::optional<double> share = leastIdleShare(kind, size.chunksPerStage, chunking))
    return pipelineLowerBound(seconds, size.stages, size.numMicroBatches, *share);
  const double path = splitsBackward(kind) ? 0.5 : 1.0;
  return seconds * std::max(double(size.numMicroBatches) / double(size.stages), path);
}

std::string_view name(Kind kind) {
  switch (kind) {
  case Kind::Forward:
    return "forward";
  case Kind::Backward:
    return "backward";
  case Kind::Weight:
    return "weight";
  case Kind::Update:
    return "update";
  case Kind::LastBackward:
    return "last_backward";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Placements
//===----------------------------------------------------------------------===//

std::vector<int> Pipeline::chunksOf(int stage) const {
  std::vector<int> chunks;
  for (int chunk = 0; chunk < numChunks(); ++chunk)
    if (chunkStage[chunk] == stage)
      chunks.push_back(chunk);
  return chunks;
}

Pipeline Pipeline::loop(int numStages, int chunksPerStage) {
  Pipeline pipeline{numStages, {}};
  for (int chunk = 0; chunk < numStages * chunksPerStage; ++chunk)
    pipeline.chunkStage.push_back(chunk % numStages);
  return pipeline;
}

Pipeline Pipeline::vee(int numStages, int chunksPerStage) {
  Pipeline pipeline = loop(numStages, chunksPerStage);
  for (int chunk = 0; chunk < pipeline.numChunks(); ++chunk)
    if (chunk / numStages % 2 == 1)
      pipeline.chunkStage[chunk] = numStages - 1 - pipeline.chunkStage[chunk];
  return pipeline;
}

std::string schedulesOfSeveralChunks(std::string_view conjunction) {
  std::vector<std::string_view> names;
  for (ScheduleKind kind : scheduleKinds())
    if (chunkRule(kind) != ChunkRule::One)
      names.push_back(name(kind));
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0)
      text += i + 1 == names.size() ? " " + std::string(conjunction) + " " : ", ";
    text += names[i];
  }
  return text;
}

std::string whyInvalid(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches) {
  if (pipeline.numStages < 1 || numMicroBatches < 1)
    return "a pipeline needs a stage and a micro-batch";
  std::vector<int> count(pipeline.numStages, 0);
  for (int stage : pipeline.chunkStage) {
    if (stage < 0 || stage >= pipeline.numStages)
      return "a chunk lies on stage " + std::to_string(stage) + " of " +
             std::to_string(pipeline.numStages);
    ++count[stage];
  }
  for (int stage = 0; stage < pipeline.numStages; ++stage)
    if (count[stage] == 0)
      return "stage " + std::to_string(stage) + " has no chunk";
  const std::string schedule = "schedule " + std::string(name(kind));
  if (chunkRule(kind) == ChunkRule::One && !(pipeline == Pipeline::plain(pipeline.numStages)))
    return schedule + " takes one chunk per stage, in order; " + schedulesOfSeveralChunks("and") +
           " take several";
  if (chunkRule(kind) == ChunkRule::Several && pipeline.numChunks() == pipeline.numStages)
    return schedule + " needs more than one chunk per stage";
  if (int64_t multiple = row(kind).microBatchMultiple(pipeline); numMicroBatches % multiple != 0)
    return schedule + " needs a number of micro-batches that its " + std::to_string(multiple) +
           " stages divide, not " + std::to_string(numMicroBatches);
  return "";
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

std::vector<Action> schedule(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches,
                             int stage) {
  assert(whyInvalid(kind, pipeline, numMicroBatches).empty() && stage >= 0 &&
         stage < pipeline.numStages && "no such pipeline or stage");
  if (!row(kind).isGenerated(pipeline))
    return greedySchedules(pipeline, numMicroBatches, splitsBackward(kind))[stage];
  return row(kind).actions(pipeline, numMicroBatches, stage);
}

std::vector<std::vector<Action>> schedules(ScheduleKind kind, const Pipeline &pipeline,
                                           int64_t numMicroBatches) {
  if (!row(kind).isGenerated(pipeline))
    return greedySchedules(pipeline, numMicroBatches, splitsBackward(kind));
  std::vector<std::vector<Action>> result;
  for (int stage = 0; stage < pipeline.numStages; ++stage)
    result.push_back(schedule(kind, pipeline, numMicroBatches, stage));
  return result;
}

namespace {

bool hasWeightParts(const std::vector<Action> &actions) {
  return std::any_of(actions.begin(), actions.end(),
                     [](const Action &action) { return action.kind == Kind::Weight; });
}

/// Calls `visit(held)` at each forward, backward and weight part, with the counts of held
/// micro-batches during the action. An action allocates before it begins and frees when it ends.
template <typename Visit>
void forEachMoment(const std::vector<Action> &actions, int numChunks, const Visit &visit) {
  bool splits = hasWeightParts(actions);
  std::vector<InFlight> now(numChunks);
  for (const Action &action : actions) {
    if (action.kind == Kind::Update)
      continue;
    InFlight &chunk = now[action.chunk];
    if (action.kind == Kind::Forward) {
      ++chunk.forward;
      ++chunk.untilWeight;
    } else if (action.kind == Kind::Backward && splits) {
      ++chunk.weight;
    }
    visit(now);
    if (action.kind == Kind::Backward)
      --chunk.forward;
    if (action.kind == Kind::Weight)
      --chunk.weight;
    if (action.kind == (splits ? Kind::Weight : Kind::Backward))
      --chunk.untilWeight;
  }
}

int64_t sumOf(const std::vector<InFlight> &held, int64_t InFlight::*of) {
  int64_t sum = 0;
  for (const InFlight &chunk : held)
    sum += chunk.*of;
  return sum;
}

} // namespace

std::vector<InFlight> mostInFlight(const std::vector<Action> &actions, int numChunks) {
  std::vector<InFlight> most(numChunks);
  int64_t largest = 0;
  forEachMoment(actions, numChunks, [&](const std::vector<InFlight> &held) {
    if (int64_t total = sumOf(held, &InFlight::untilWeight); total > largest) {
      largest = total;
      most = held;
    }
  });
  return most;
}

Moments fullestMoments(const std::vector<Action> &actions, int numChunks) {
  Moments moments = {mostInFlight(actions, numChunks)};
  if (!hasWeightParts(actions))
    return moments;
  struct MostWeight {
    int64_t weight = -1;
    std::vector<InFlight> held;
  };
  std::vector<MostWeight> mostWeight; // by forward
  forEachMoment(actions, numChunks, [&](const std::vector<InFlight> &held) {
    const size_t forward = size_t(sumOf(held, &InFlight::forward));
    if (forward >= mostWeight.size())
      mostWeight.resize(forward + 1);
    MostWeight &best = mostWeight[forward];
    if (const int64_t weight = sumOf(held, &InFlight::weight); weight > best.weight)
      best = {weight, held};
  });
  // From the most forward down: each corner of the convex hull holds more weight than those before
  // it, and turns left.
  struct Corner {
    int64_t forward, weight;
    const std::vector<InFlight> *held;
  };
  std::vector<Corner> hull;
  for (size_t forward = mostWeight.size(); forward-- > 0;) {
    const auto &[weight, held] = mostWeight[forward];
    Corner next{int64_t(forward), weight, &held};
    if (weight < 0 || (!hull.empty() && weight <= hull.back().weight))
      continue;
    auto isInside = [&] { // the last corner, between the one before it and `next`
      const Corner &a = hull[hull.size() - 2], &b = hull.back();
      return (a.forward - b.forward) * (next.weight - b.weight) >=
             (b.weight - a.weight) * (b.forward - next.forward);
    };
    while (hull.size() >= 2 && isInside())
      hull.pop_back();
    hull.push_back(next);
  }
  for (const Corner &corner : hull)
    if (*corner.held != moments[0])
      moments.push_back(*corner.held);
  return moments;
}

} // namespace tbc::schedule
