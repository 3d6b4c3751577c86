//===- Greedy.cpp - A schedule for any placement of chunks -----------------===//

#include "runtime/schedule/Greedy.h"

#include <limits>

namespace tbc::schedule {

namespace {

using Kind = Action::Kind;

class Scheduler {
public:
  Scheduler(const Pipeline &pipeline, int64_t numMicroBatches, bool splits)
      : pipeline(pipeline), numMicroBatches(numMicroBatches), splits(splits),
        chunks(pipeline.numChunks()), stages(pipeline.numStages), actions(pipeline.numStages) {
    for (int stage = 0; stage < pipeline.numStages; ++stage)
      stages[stage].chunks = pipeline.chunksOf(stage);
  }

  std::vector<std::vector<Action>> run() {
    int64_t perMicroBatch = splits ? 3 : 2;
    int64_t left = perMicroBatch * numMicroBatches * pipeline.numChunks();
    for (int64_t tick = 0; left > 0; ++tick) {
      finish(tick);
      for (int stage = 0; stage < pipeline.numStages; ++stage)
        if (stages[stage].freeAt <= tick && begin(stage, tick))
          --left;
    }
    for (std::vector<Action> &list : actions)
      list.push_back({Kind::Update, 0, 0});
    return std::move(actions);
  }

private:
  /// Micro-batches pass a chunk in ascending order, so two counters per kind describe the progress.
  struct Chunk {
    int64_t begun[numActionKinds] = {}; // by kind
    int64_t done[numActionKinds] = {};
  };
  struct Stage {
    std::vector<int> chunks;
    int64_t freeAt = 0;
    int running = -1; // index in `chunks` of the action that runs until freeAt
    Kind kind = Kind::Forward;
  };

  int64_t length(Kind kind) const { return kind == Kind::Backward && !splits ? 2 : 1; }

  void finish(int64_t tick) {
    for (Stage &stage : stages)
      if (stage.running >= 0 && stage.freeAt <= tick) {
        ++chunks[stage.chunks[stage.running]].done[int(stage.kind)];
        stage.running = -1;
      }
  }

  bool canRun(int chunk, Kind kind) const {
    int64_t next = chunks[chunk].begun[int(kind)];
    if (next == numMicroBatches)
      return false;
    switch (kind) {
    case Kind::Forward:
      return chunk == 0 || next < chunks[chunk - 1].done[int(Kind::Forward)];
    case Kind::Backward: {
      bool isLast = chunk + 1 == pipeline.numChunks();
      return isLast ? next < chunks[chunk].done[int(Kind::Forward)]
                    : next < chunks[chunk + 1].done[int(Kind::Backward)];
    }
    case Kind::Weight:
      return next < chunks[chunk].done[int(Kind::Backward)];
    case Kind::LastBackward:
    case Kind::Update:
      break;
    }
    return false;
  }

  /// Whether the stage may start another micro-batch. A micro-batch is in flight from the forward
  /// to the backward of the stage's first chunk.
  bool hasRoom(const Stage &stage) const {
    const Chunk &first = chunks[stage.chunks.front()];
    return first.begun[int(Kind::Forward)] - first.done[int(Kind::Backward)] < pipeline.numChunks();
  }

  int64_t waitingWeights(const Stage &stage) const {
    int64_t count = 0;
    for (int chunk : stage.chunks)
      count += chunks[chunk].done[int(Kind::Backward)] - chunks[chunk].begun[int(Kind::Weight)];
    return count;
  }

  bool begin(int stageIndex, int64_t tick) {
    Stage &stage = stages[stageIndex];
    bool isFull = splits && waitingWeights(stage) >= pipeline.numChunks();
    for (Kind kind :
         {isFull ? Kind::Weight : Kind::Backward, isFull ? Kind::Backward : Kind::Forward,
          isFull ? Kind::Forward : Kind::Weight}) {
      if (kind == Kind::Weight && !splits)
        continue;
      int best = -1;
      for (int place = 0; place < int(stage.chunks.size()); ++place) {
        int chunk = stage.chunks[place];
        if (!canRun(chunk, kind) || (kind == Kind::Forward && place == 0 && !hasRoom(stage)))
          continue;
        // Furthest along: the last chunk in forward, the first in backward.
        if (best < 0 || kind == Kind::Forward)
          best = place;
      }
      if (best < 0)
        continue;
      Chunk &chunk = chunks[stage.chunks[best]];
      actions[stageIndex].push_back({kind, chunk.begun[int(kind)]++, best});
      stage.freeAt = tick + length(kind);
      stage.running = best;
      stage.kind = kind;
      return true;
    }
    return false;
  }

  const Pipeline &pipeline;
  int64_t numMicroBatches;
  bool splits;
  std::vector<Chunk> chunks;
  std::vector<Stage> stages;
  std::vector<std::vector<Action>> actions;
};

} // namespace

std::vector<std::vector<Action>> greedySchedules(const Pipeline &pipeline, int64_t numMicroBatches,
                                                 bool splitsBackward) {
  return Scheduler(pipeline, numMicroBatches, splitsBackward).run();
}

} // namespace tbc::schedule
