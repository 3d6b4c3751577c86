//===- PipelineCuts.h - Makespans of cuts, for tests of bounds ------------===//

#ifndef TBC_TESTS_PLANNER_CORE_PIPELINECUTS_H
#define TBC_TESTS_PLANNER_CORE_PIPELINECUTS_H

#include "planner/bound/PipelineBound.h"

#include <random>
#include <utility>
#include <vector>

namespace tbc::planner::test {

/// Returns the makespan if part p lies on chunk `chunkOf[p]`.
inline double makespanOf(const PipelineSchedule &schedule, const std::vector<WorkShare> &parts,
                         const std::vector<int> &chunkOf, double sendSeconds = 0) {
  std::vector<schedule::ChunkTimes> times(schedule.pipeline.chunkStage.size());
  for (schedule::ChunkTimes &of : times)
    of.sendForwardSeconds = of.sendBackwardSeconds = sendSeconds;
  bool isParted = schedule::splitsBackward(schedule.kind);
  for (size_t p = 0; p < parts.size(); ++p) {
    schedule::ChunkTimes &of = times[chunkOf[p]];
    of.forwardSeconds += parts[p].forward;
    of.backwardSeconds += parts[p].backward + (isParted ? 0 : parts[p].weight);
    of.weightSeconds += isParted ? parts[p].weight : 0;
  }
  return schedule::makespanSeconds(schedule.actions, schedule.pipeline, times,
                                   schedule.accumulation);
}

/// The same with a send over each cut, by the part after it.
inline double makespanOf(const PipelineSchedule &schedule, const std::vector<WorkShare> &parts,
                         const std::vector<int> &chunkOf, const SendSeconds &sends) {
  std::vector<schedule::ChunkTimes> times(schedule.pipeline.chunkStage.size());
  const bool isParted = schedule::splitsBackward(schedule.kind);
  for (size_t p = 0; p < parts.size(); ++p) {
    const size_t c = size_t(chunkOf[p]);
    times[c].forwardSeconds += parts[p].forward;
    times[c].backwardSeconds += parts[p].backward + (isParted ? 0 : parts[p].weight);
    times[c].weightSeconds += isParted ? parts[p].weight : 0;
    const bool isCut = p > 0 && chunkOf[p - 1] != chunkOf[p];
    if (!isCut || schedule.pipeline.chunkStage[c - 1] == schedule.pipeline.chunkStage[c])
      continue;
    times[c - 1].sendForwardSeconds = sends.forwardTo(p);
    times[c].sendBackwardSeconds = sends.backwardFrom(p);
  }
  return schedule::makespanSeconds(schedule.actions, schedule.pipeline, times,
                                   schedule.accumulation);
}

struct ScheduleCase {
  ScheduleKind kind;
  int64_t stages;
  int chunksPerStage;
  bool thereAndBack;
  int64_t accumulation;
};

inline PipelineSchedule make(const ScheduleCase &c) {
  schedule::Pipeline pipeline = c.thereAndBack
                                    ? schedule::Pipeline::vee(int(c.stages), c.chunksPerStage)
                                    : schedule::Pipeline::loop(int(c.stages), c.chunksPerStage);
  return PipelineSchedule::make(c.kind, c.stages, pipeline.chunkStage, c.accumulation);
}

/// The chunk of each part, in order, with a part on each chunk.
inline std::vector<int> randomCut(std::mt19937 &random, const std::vector<bool> &mayBegin,
                                  int numChunks) {
  std::vector<size_t> positions;
  for (size_t p = 1; p < mayBegin.size(); ++p)
    if (mayBegin[p])
      positions.push_back(p);
  for (size_t i = positions.size(); i-- > 1;) // as std::shuffle, the same everywhere
    std::swap(positions[i], positions[random() % (i + 1)]);
  std::vector<int> chunkOf(mayBegin.size(), 0);
  for (int cut = 0; cut + 1 < numChunks; ++cut)
    for (size_t p = positions[size_t(cut)]; p < chunkOf.size(); ++p)
      ++chunkOf[p];
  return chunkOf;
}

} // namespace tbc::planner::test

#endif // TBC_TESTS_PLANNER_CORE_PIPELINECUTS_H
