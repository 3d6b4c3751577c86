//===- ScheduleText.h - A schedule with its chunks in words ---------------===//

#ifndef TBC_PLANNER_PLAN_SCHEDULETEXT_H
#define TBC_PLANNER_PLAN_SCHEDULETEXT_H

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::planner {

/// Describes the schedule called `word` with the stage of each chunk, on `stages` stages. Examples:
/// "1f1b" without chunks; "interleaved x2" for the stages 0, 1, 0, 1; "zero-bubble V" for 0, 1, 1,
/// 0.
std::string withChunks(const std::string &word, const std::vector<int> &chunkStage, int64_t stages);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_SCHEDULETEXT_H
