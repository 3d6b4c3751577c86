//===- Rows.cpp - The answers of each pipeline schedule ---------------------===//
//
// A new schedule is a value of ScheduleKind, its generator here and its row at the end.
//
//===----------------------------------------------------------------------===//

#include "runtime/schedule/Row.h"

#include <algorithm>

namespace tbc::schedule {

using Kind = Action::Kind;

//===----------------------------------------------------------------------===//
// Placements
//===----------------------------------------------------------------------===//

static bool isAny(const Pipeline &) { return true; }

static bool isLoop(const Pipeline &pipeline) {
  return pipeline.numChunks() % pipeline.numStages == 0 &&
         pipeline == Pipeline::loop(pipeline.numStages, pipeline.numChunks() / pipeline.numStages);
}

static bool isZbV(const Pipeline &pipeline) {
  return pipeline == Pipeline::vee(pipeline.numStages, 2);
}

static bool isPlainOrZbV(const Pipeline &pipeline) {
  return pipeline == Pipeline::plain(pipeline.numStages) || isZbV(pipeline);
}

static int64_t anyNumber(const Pipeline &) { return 1; }

/// A group of micro-batches has one for each stage.
static int64_t wholeGroups(const Pipeline &pipeline) {
  return isLoop(pipeline) ? pipeline.numStages : 1;
}

static int64_t oneMoreThanStages(int64_t numStages) { return std::max<int64_t>(2, numStages + 1); }

static int64_t twoGroups(int64_t numStages) { return 2 * numStages; }

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
  int64_t next[numActionKinds][2] = {}; // by kind and chunk
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

static std::vector<Action> gpipeActions(const Pipeline &, int64_t numMicroBatches, int) {
  return inTurns(ascending(numMicroBatches), numMicroBatches);
}

static int64_t stagesAfter(const Pipeline &pipeline, int stage) {
  return int64_t(pipeline.numStages) - stage - 1;
}

static std::vector<Action> oneFOneBActions(const Pipeline &pipeline, int64_t numMicroBatches,
                                           int stage) {
  return inTurns(ascending(numMicroBatches), stagesAfter(pipeline, stage));
}

static std::vector<Action> interleavedActions(const Pipeline &pipeline, int64_t numMicroBatches,
                                              int stage) {
  return inTurns(interleaved(pipeline, numMicroBatches),
                 2 * stagesAfter(pipeline, stage) + pipeline.numChunks() - pipeline.numStages);
}

static std::vector<Action> zeroBubbleActions(const Pipeline &pipeline, int64_t numMicroBatches,
                                             int stage) {
  if (isZbV(pipeline))
    return zeroBubbleV(pipeline.numStages, numMicroBatches, stage);
  // ZB-H1: weight parts are delayed until every stage keeps as many micro-batches as the first.
  return inTurns(ascending(numMicroBatches), stagesAfter(pipeline, stage), stage);
}

//===----------------------------------------------------------------------===//
// Bubbles
//===----------------------------------------------------------------------===//

/// One chunk forward and backward. Source: Narayanan et al., SC 2021, section 2.2.
static double wholeChunk(const ChunkTimes &stage, double chunksPerStage) {
  return (stage.forwardSeconds + stage.backwardSeconds + stage.weightSeconds) / chunksPerStage;
}

/// One chunk per stage: forward and dgrad, less the wgrad that fills the bubble. Source: Qi et al.,
/// ICLR 2024, table 1. Several chunks: the forward of one. Source: Qi et al., NeurIPS 2024,
/// section 4.
static double withoutWeight(const ChunkTimes &stage, double chunksPerStage) {
  if (chunksPerStage > 1)
    return stage.forwardSeconds / chunksPerStage;
  return std::max(stage.forwardSeconds,
                  stage.forwardSeconds + stage.backwardSeconds - stage.weightSeconds);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

static const Row gpipe{
    .name = "gpipe",
    .splitsBackward = false,
    .chunks = ChunkRule::One,
    .prefersVee = false,
    .isSearched = false, // it takes as long as 1F1B and holds more
    .layouts = {{1, false}},
    .keepsAllMicroBatches = true,
    .microBatchMultiple = anyNumber,
    .steadyMicroBatches = oneMoreThanStages,
    .isGenerated = isAny,
    .actions = gpipeActions,
    .bubbleSeconds = wholeChunk,
    .idleShare = 1,
    .idleShareOfEqualChunks = 1,
};

static const Row oneFOneB{
    .name = "1f1b",
    .splitsBackward = false,
    .chunks = ChunkRule::One,
    .prefersVee = false,
    .isSearched = true,
    .layouts = {{1, false}},
    .keepsAllMicroBatches = false,
    .microBatchMultiple = anyNumber,
    .steadyMicroBatches = oneMoreThanStages,
    .isGenerated = isAny,
    .actions = oneFOneBActions,
    .bubbleSeconds = wholeChunk,
    .idleShare = 1,
    .idleShareOfEqualChunks = 1,
};

static const Row interleavedRow{
    .name = "interleaved",
    .splitsBackward = false,
    .chunks = ChunkRule::Several,
    .prefersVee = false,
    .isSearched = true,
    .layouts = {{2, false}, {3, false}, {4, false}},
    .keepsAllMicroBatches = false,
    .microBatchMultiple = wholeGroups,
    .steadyMicroBatches = twoGroups,
    .isGenerated = isLoop,
    .actions = interleavedActions,
    .bubbleSeconds = wholeChunk,
    .idleShare = std::nullopt,   // the first chunk of a stage may be short
    .idleShareOfEqualChunks = 1, // a stage first waits for one chunk of each earlier stage
};

static const Row zeroBubble{
    .name = "zero-bubble",
    .splitsBackward = true,
    .chunks = ChunkRule::Any,
    .prefersVee = true,
    .isSearched = true,
    .layouts = {{1, false}, {2, true}},
    .keepsAllMicroBatches = false,
    .microBatchMultiple = anyNumber,
    .steadyMicroBatches = oneMoreThanStages,
    .isGenerated = isPlainOrZbV,
    .actions = zeroBubbleActions,
    .bubbleSeconds = withoutWeight,
    .idleShare = std::nullopt,
    // wgrad fills the end of the step, so a stage waits only for the forward of one chunk of each
    // earlier stage: with recomputation a fourth of the chunk.
    .idleShareOfEqualChunks = 0.25,
};

const Row *findRow(ScheduleKind kind) {
  switch (kind) {
  case ScheduleKind::GPipe:
    return &gpipe;
  case ScheduleKind::OneFOneB:
    return &oneFOneB;
  case ScheduleKind::Interleaved:
    return &interleavedRow;
  case ScheduleKind::ZeroBubble:
    return &zeroBubble;
  }
  return nullptr;
}

} // namespace tbc::schedule
