//===- ScheduleText.cpp - A schedule with its chunks in words -------------===//

#include "planner/plan/ScheduleText.h"
#include "runtime/schedule/Schedule.h"

namespace tbc::planner {

std::string withChunks(const std::string &word, const std::vector<int> &chunkStage,
                       int64_t stages) {
  const size_t chunks = chunkStage.size();
  if (chunks == 0 || stages < 1)
    return word;
  const int each = int(chunks) / int(stages);
  if (chunkStage == schedule::Pipeline::loop(int(stages), each).chunkStage)
    return word + " x" + std::to_string(each);
  if (chunkStage == schedule::Pipeline::vee(int(stages), each).chunkStage)
    return word + " V" + (each == 2 ? "" : std::to_string(each));
  return word + " of " + std::to_string(chunks) + " chunks";
}

} // namespace tbc::planner
