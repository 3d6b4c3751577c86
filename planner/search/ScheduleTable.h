//===- ScheduleTable.h - Pipeline schedules shared by candidates ----------===//

#ifndef TBC_PLANNER_SEARCH_SCHEDULETABLE_H
#define TBC_PLANNER_SEARCH_SCHEDULETABLE_H

#include "planner/predict/Time.h"
#include "planner/search/Candidate.h"
#include "planner/support/OnceMap.h"

#include <cstdint>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// The stages of a pipeline's chunks. Example: 2 stages with 2 V-shaped chunks each have
/// stageOf = {0, 1, 1, 0} and chunksOf = {{0, 3}, {1, 2}}.
struct ChunkStages {
  std::vector<int> stageOf;               // by chunk
  std::vector<std::vector<int>> chunksOf; // by stage
};

/// Memo table of pipeline schedules. A value depends only on the candidate's schedule, its number
/// of stages and its accumulation. Thread-safe.
class ScheduleTable {
public:
  const ChunkStages &chunksFor(const Candidate &candidate) const;
  const std::vector<int> &chunksOf(const Candidate &candidate, int stage) const {
    return chunksFor(candidate).chunksOf[size_t(stage)];
  }
  /// Returns the schedule of all micro-batches of a step.
  const PipelineSchedule &scheduleFor(const Candidate &candidate) const;
  /// Returns the moments of largest memory by stage. Computed from the fewest micro-batches that
  /// have them (microBatchesOfPeak), and that schedule is not kept: a search asks for the moments
  /// of many schedules that it never simulates.
  const std::vector<schedule::Moments> &momentsOf(const Candidate &candidate) const;

private:
  mutable OnceMap<std::tuple<int, bool, int64_t>, ChunkStages> chunks;
  using Key = std::tuple<ScheduleKind, int, bool, int64_t, int64_t>; // last: stages, accumulation
  mutable OnceMap<Key, PipelineSchedule> schedules;
  mutable OnceMap<Key, std::vector<schedule::Moments>> moments;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SCHEDULETABLE_H
