//===- Row.h - The answers of one pipeline schedule ------------------------===//
//
// Part of tbc. Internal to runtime/schedule; Schedule.h has the questions.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_SCHEDULE_ROW_H
#define TBC_RUNTIME_SCHEDULE_ROW_H

#include "runtime/schedule/Schedule.h"

namespace tbc::schedule {

/// One schedule. No field has a default, so that a new row answers every question.
struct Row {
  std::string_view name;
  bool splitsBackward;
  ChunkRule chunks;
  bool prefersVee;
  bool isSearched;
  std::vector<Layout> layouts; // searchedLayouts()
  bool keepsAllMicroBatches;
  /// The number of micro-batches must be a multiple of this one.
  int64_t (*microBatchMultiple)(const Pipeline &pipeline);
  int64_t (*steadyMicroBatches)(int64_t numStages);
  /// Whether `actions` is for this placement; the others are greedy (Greedy.h).
  bool (*isGenerated)(const Pipeline &pipeline);
  std::vector<Action> (*actions)(const Pipeline &pipeline, int64_t numMicroBatches, int stage);
  double (*bubbleSeconds)(const ChunkTimes &stage, double chunksPerStage);
  /// leastIdleShare() for any chunks, and for chunks of equal time: the latter times the number of
  /// chunks on a stage.
  std::optional<double> idleShare, idleShareOfEqualChunks;
};

/// Returns nullptr for an integer beyond the last kind.
const Row *findRow(ScheduleKind kind);

} // namespace tbc::schedule

#endif // TBC_RUNTIME_SCHEDULE_ROW_H
