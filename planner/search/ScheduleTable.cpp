//===- ScheduleTable.cpp - Pipeline schedules shared by candidates --------===//

#include "planner/search/ScheduleTable.h"

#include <algorithm>

namespace tbc::planner {

static ChunkStages computeChunks(const ScheduleChoice &choice, int64_t stages) {
  ChunkStages known;
  known.stageOf = choice.chunkStage(stages);
  if (known.stageOf.empty())
    for (int stage = 0; stage < int(stages); ++stage)
      known.stageOf.push_back(stage);
  known.chunksOf.resize(size_t(stages));
  for (size_t chunk = 0; chunk < known.stageOf.size(); ++chunk)
    known.chunksOf[size_t(known.stageOf[chunk])].push_back(int(chunk));
  return known;
}

const ChunkStages &ScheduleTable::chunksFor(const Candidate &candidate) const {
  const ScheduleChoice &choice = candidate.schedule;
  int64_t stages = candidate.mesh.pp;
  return chunks.get({choice.chunksPerStage, choice.thereAndBack, stages},
                    [&] { return computeChunks(choice, stages); });
}

const PipelineSchedule &ScheduleTable::scheduleFor(const Candidate &candidate) const {
  const ScheduleChoice &choice = candidate.schedule;
  int64_t pp = candidate.mesh.pp;
  return schedules.get(
      {choice.kind(), choice.chunksPerStage, choice.thereAndBack, pp, candidate.accumulation}, [&] {
        return PipelineSchedule::make(choice.schedule, pp, choice.chunkStage(pp),
                                      candidate.accumulation);
      });
}

const std::vector<schedule::Moments> &ScheduleTable::momentsOf(const Candidate &candidate) const {
  const ScheduleChoice &choice = candidate.schedule;
  const schedule::Pipeline pipeline{int(candidate.mesh.pp), chunksFor(candidate).stageOf};
  // One stage holds the same for many micro-batches as for one.
  const int64_t accumulation = pipeline.numStages == 1 ? 1 : candidate.accumulation;
  const int64_t enough = std::min(
      accumulation, schedule::microBatchesOfPeak(choice.kind(), pipeline).value_or(accumulation));
  return moments.get(
      {choice.kind(), choice.chunksPerStage, choice.thereAndBack, candidate.mesh.pp, enough}, [&] {
        std::vector<schedule::Moments> byStage;
        for (int stage = 0; stage < pipeline.numStages; ++stage)
          byStage.push_back(schedule::fullestMoments(
              schedule::schedule(choice.kind(), pipeline, enough, stage), choice.chunksPerStage));
        return byStage;
      });
}

} // namespace tbc::planner
