//===- Schedule.cpp - Pipeline schedules as generators ---------------------===//

#include "runtime/schedule/Schedule.h"
#include "runtime/schedule/Greedy.h"

#include <algorithm>
#include <cassert>
#include <map>

namespace tbc::schedule {

using Kind = Action::Kind;

const std::vector<std::string> &scheduleNames() {
  static const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
  return names;
}

std::string_view name(ScheduleKind kind) { return scheduleNames()[size_t(kind)]; }

std::optional<ScheduleKind> parseScheduleKind(std::string_view text) {
  for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::Interleaved,
                            ScheduleKind::ZeroBubble}) {
    if (name(kind) == text)
      return kind;
  }
  return std::nullopt;
}

bool splitsBackward(ScheduleKind kind) { return kind == ScheduleKind::ZeroBubble; }

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

static bool isLoop(const Pipeline &pipeline) {
  return pipeline.numChunks() % pipeline.numStages == 0 &&
         pipeline == Pipeline::loop(pipeline.numStages, pipeline.numChunks() / pipeline.numStages);
}

static bool isZbV(const Pipeline &pipeline) {
  return pipeline == Pipeline::vee(pipeline.numStages, 2);
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
  bool isPlain = pipeline == Pipeline::plain(pipeline.numStages);
  switch (kind) {
  case ScheduleKind::GPipe:
  case ScheduleKind::OneFOneB:
    return isPlain ? ""
                   : "schedule " + std::string(name(kind)) +
                         " takes one chunk per stage, in order; interleaved and zero-bubble take "
                         "several";
  case ScheduleKind::Interleaved:
    if (pipeline.numChunks() == pipeline.numStages)
      return "schedule interleaved needs more than one chunk per stage";
    if (isLoop(pipeline) && numMicroBatches % pipeline.numStages != 0)
      return "schedule interleaved needs a number of micro-batches that its " +
             std::to_string(pipeline.numStages) + " stages divide, not " +
             std::to_string(numMicroBatches);
    return "";
  case ScheduleKind::ZeroBubble:
    return "";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Generators
//===----------------------------------------------------------------------===//

namespace {
/// The k-th forward or backward of a stage in an order that does not depend on the other kind.
struct Orders {
  std::vector<Action> forwards, backwards;
};
} // namespace

/// `warmUp` forwards, then a forward and a backward in turns, then the remaining backwards. The
/// weight part of a backward comes `lag` backwards after it; lag < 0 means no weight parts.
/// Example: 4 micro-batches with a warm-up of 1: F0 F1 B0 F2 B1 F3 B2 B3.
static std::vector<Action> inTurns(const Orders &orders, int64_t warmUp, int64_t lag = -1) {
  const int64_t total = int64_t(orders.forwards.size());
  std::vector<Action> actions;
  actions.reserve(size_t(lag >= 0 ? 3 : 2) * size_t(total) + 1);
  int64_t numBackwards = 0, numWeights = 0;
  auto weight = [&] {
    Action action = orders.backwards[numWeights++];
    action.kind = Kind::Weight;
    actions.push_back(action);
  };
  auto backward = [&] {
    actions.push_back(orders.backwards[numBackwards++]);
    if (lag >= 0 && numBackwards > lag)
      weight();
  };
  warmUp = std::min(warmUp, total);
  actions.insert(actions.end(), orders.forwards.begin(), orders.forwards.begin() + warmUp);
  for (int64_t i = warmUp; i < total; ++i) {
    actions.push_back(orders.forwards[i]);
    backward();
  }
  while (numBackwards < total)
    backward();
  while (lag >= 0 && numWeights < total)
    weight();
  actions.push_back({Kind::Update, 0, 0});
  return actions;
}

static Orders ascending(int64_t numMicroBatches) {
  Orders orders;
  for (int64_t i = 0; i < numMicroBatches; ++i) {
    orders.forwards.push_back({Kind::Forward, i, 0});
    orders.backwards.push_back({Kind::Backward, i, 0});
  }
  return orders;
}

/// Groups of numStages micro-batches pass chunk after chunk.
static Orders interleaved(const Pipeline &pipeline, int64_t numMicroBatches) {
  int64_t p = pipeline.numStages, v = pipeline.numChunks() / pipeline.numStages;
  Orders orders;
  for (int64_t k = 0; k < numMicroBatches * v; ++k) {
    int64_t microBatch = k / (p * v) * p + k % p;
    int chunk = int(k / p % v);
    orders.forwards.push_back({Kind::Forward, microBatch, chunk});
    orders.backwards.push_back({Kind::Backward, microBatch, int(v) - 1 - chunk});
  }
  return orders;
}

/// ZB-V. Fewer than 2 p - 1 micro-batches use the schedule for 2 p - 1, without the actions of the
/// others. Source: figure 3 of the paper; the number of actions of each part as in PyTorch's
/// ScheduleZBVZeroBubble (torch/distributed/pipelining/schedules.py).
static std::vector<Action> zeroBubbleV(int64_t numStages, int64_t numMicroBatches, int64_t stage) {
  int64_t total = std::max(2 * numStages - 1, numMicroBatches);
  std::vector<Action> actions;
  int64_t next[3][2] = {{0, 0}, {0, 0}, {0, 0}}; // by kind and chunk
  auto run = [&](Kind kind, int chunk) {
    int64_t microBatch = next[int(kind)][chunk]++;
    if (microBatch < numMicroBatches)
      actions.push_back({kind, microBatch, chunk});
  };
  auto both = [&](int chunk) {
    run(Kind::Backward, chunk);
    run(Kind::Weight, chunk);
  };
  const int64_t &forwards0 = next[int(Kind::Forward)][0], &forwards1 = next[int(Kind::Forward)][1];

  for (int64_t i = 0; i < 2 * (numStages - stage) - 1; ++i)
    run(Kind::Forward, 0);
  for (int64_t i = 0; i < stage; ++i) {
    run(Kind::Forward, 1);
    run(Kind::Forward, 0);
  }
  for (int64_t i = 0; i < numStages - stage; ++i) {
    run(Kind::Forward, 1);
    both(1);
  }
  while (forwards1 < forwards0 || forwards0 < total) {
    if (forwards0 < total)
      run(Kind::Forward, 0);
    both(0);
    run(Kind::Forward, 1);
    both(1);
  }
  for (int64_t i = 0; i < stage; ++i) {
    run(Kind::Backward, 0);
    run(Kind::Backward, 1);
  }
  for (int64_t i = 0; i < numStages - stage; ++i)
    both(0);
  for (int chunk : {1, 0})
    while (next[int(Kind::Weight)][chunk] < next[int(Kind::Backward)][chunk])
      run(Kind::Weight, chunk);
  actions.push_back({Kind::Update, 0, 0});
  return actions;
}

static bool isGreedy(ScheduleKind kind, const Pipeline &pipeline) {
  if (kind == ScheduleKind::Interleaved)
    return !isLoop(pipeline);
  return kind == ScheduleKind::ZeroBubble && !(pipeline == Pipeline::plain(pipeline.numStages)) &&
         !isZbV(pipeline);
}

std::vector<Action> schedule(ScheduleKind kind, const Pipeline &pipeline, int64_t numMicroBatches,
                             int stage) {
  assert(whyInvalid(kind, pipeline, numMicroBatches).empty() && stage >= 0 &&
         stage < pipeline.numStages && "no such pipeline or stage");
  if (isGreedy(kind, pipeline))
    return greedySchedules(pipeline, numMicroBatches, splitsBackward(kind))[stage];
  int64_t p = pipeline.numStages, after = p - stage - 1;
  switch (kind) {
  case ScheduleKind::GPipe:
    return inTurns(ascending(numMicroBatches), numMicroBatches);
  case ScheduleKind::OneFOneB:
    return inTurns(ascending(numMicroBatches), after);
  case ScheduleKind::Interleaved:
    return inTurns(interleaved(pipeline, numMicroBatches), 2 * after + pipeline.numChunks() - p);
  case ScheduleKind::ZeroBubble:
    break;
  }
  if (isZbV(pipeline))
    return zeroBubbleV(p, numMicroBatches, stage);
  // ZB-H1: weight parts are delayed until every stage keeps as many micro-batches as the first.
  return inTurns(ascending(numMicroBatches), after, stage);
}

std::vector<std::vector<Action>> schedules(ScheduleKind kind, const Pipeline &pipeline,
                                           int64_t numMicroBatches) {
  if (isGreedy(kind, pipeline))
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
  std::map<int64_t, std::vector<InFlight>> mostWeight; // by forward
  forEachMoment(actions, numChunks, [&](const std::vector<InFlight> &held) {
    std::vector<InFlight> &best = mostWeight[sumOf(held, &InFlight::forward)];
    if (best.empty() || sumOf(held, &InFlight::weight) > sumOf(best, &InFlight::weight))
      best = held;
  });
  // From the most forward down: each corner of the convex hull holds more weight than those before
  // it, and turns left.
  struct Corner {
    int64_t forward, weight;
    const std::vector<InFlight> *held;
  };
  std::vector<Corner> hull;
  for (auto it = mostWeight.rbegin(); it != mostWeight.rend(); ++it) {
    Corner next{it->first, sumOf(it->second, &InFlight::weight), &it->second};
    if (!hull.empty() && next.weight <= hull.back().weight)
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
