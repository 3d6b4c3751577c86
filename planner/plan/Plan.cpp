//===- Plan.cpp - The planner's answer ------------------------------------===//

#include "planner/plan/Plan.h"
#include "planner/plan/ScheduleText.h"

#include <algorithm>

namespace tbc::planner {

const char *name(GatherLifetime lifetime) {
  switch (lifetime) {
  case GatherLifetime::Always:
    return "always";
  case GatherLifetime::Step:
    return "step";
  case GatherLifetime::ForwardAndBackward:
    return "forward and backward";
  case GatherLifetime::Use:
    return "use";
  }
  return "";
}

const char *name(SearchEnd end) {
  return end == SearchEnd::Complete ? "complete"
         : end == SearchEnd::Budget ? "budget"
                                    : "time limit";
}

int64_t Plan::limitBytes(const Cluster &devices) const {
  int64_t usable = devices.usableBytes();
  return memoryLimitBytes > 0 ? std::min(memoryLimitBytes, usable) : usable;
}

std::string whyInvalidSchedule(const Plan &plan) {
  if (plan.schedule.has_value() != (plan.mesh.pp > 1))
    return "must be none without pipeline stages, and a schedule with them";
  if (plan.mesh.pp == 1)
    return plan.chunkStage.empty() ? "" : "there are no pipeline stages to place chunks on";
  schedule::Pipeline pipeline = schedule::Pipeline::plain(int(plan.mesh.pp));
  if (!plan.chunkStage.empty())
    pipeline.chunkStage = plan.chunkStage;
  return schedule::whyInvalid(*plan.schedule, pipeline, plan.accumulation);
}

std::string scheduleText(const Plan &plan) {
  return withChunks(scheduleWord(plan.schedule), plan.chunkStage, plan.mesh.pp);
}

} // namespace tbc::planner
