//===- Runnable.cpp - Decisions that an executor does not run -------------===//

#include "planner/pins/Runnable.h"
#include "planner/pins/Conditions.h"
#include "planner/plan/Decisions.h"
#include "planner/support/Format.h"

namespace tbc::planner {

std::vector<std::string> notRunnable(const Plan &plan) {
  const RunnablePlans &runnable = executorOf(plan.cluster).plans;
  const MeshShape &mesh = plan.mesh;
  std::vector<std::string> parts;
  for (const auto &[name, size] : mesh.axes())
    if (size > 1 && !RunnablePlans::has(runnable.axes, name))
      parts.push_back(std::string(name) + "=" + std::to_string(size));
  const ParameterDecision &decision = plan.parameterDefault;
  const bool isSharded = !decision.zeroAxes.empty();
  const ZeroChoice zero{isSharded ? decision.zero : 0, isSharded && decision.keepGathered};
  if (!RunnablePlans::has(runnable.zero, zeroWord(zero)))
    parts.push_back(zero.keepGathered ? zeroWord(zero) : "ZeRO-" + zeroWord(zero));
  if (isSharded && mesh.dp > 1 && mesh.fsdp > 1 && !runnable.shardsInGroups)
    parts.push_back("shards in groups");
  if (mesh.pp > 1 && !RunnablePlans::has(runnable.schedules, scheduleWord(plan.schedule)))
    parts.push_back("schedule " + scheduleWord(plan.schedule));
  const bool isLoop =
      plan.chunkStage.empty() ||
      plan.chunkStage ==
          schedule::Pipeline::loop(int(mesh.pp), int(plan.numChunks() / mesh.pp)).chunkStage;
  if (!isLoop && !runnable.placesInV)
    parts.push_back("placement v");
  if (!plan.recompute.share.isAll() && runnable.recompute == RecomputeShare::All)
    parts.push_back("recompute " + toString(plan.recompute));
  if (mesh.cp > 1 && !RunnablePlans::has(runnable.contexts, reshard::name(plan.context)))
    parts.push_back(std::string("context ") + reshard::name(plan.context));
  if (plan.overlap.gatherBytes > 0 && !executorOf(plan.cluster).isOwn())
    parts.push_back("gathers of up to " + formatBytes(double(plan.overlap.gatherBytes)));
  return parts;
}

} // namespace tbc::planner
