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
  const PipelineSchedule &scheduleFor(const Candidate &candidate) const {
    return scheduleFor(candidate, candidate.accumulation);
  }
  /// Returns the moments of largest memory by stage. Computed from a schedule of at most 4
  /// micro-batches per chunk, because longer ones hold the same, unless the schedule keeps all.
  const std::vector<schedule::Moments> &momentsOf(const Candidate &candidate) const;

private:
  const PipelineSchedule &scheduleFor(const Candidate &candidate, int64_t accumulation) const;

  mutable OnceMap<std::tuple<int, bool, int64_t>, ChunkStages> chunks;
  using Key = std::tuple<ScheduleKind, int, bool, int64_t, int64_t>; // last: stages, accumulation
  mutable OnceMap<Key, PipelineSchedule> schedules;
  mutable OnceMap<Key, std::vector<schedule::Moments>> moments;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SEARCH_SCHEDULETABLE_H
