//===- PlanDevices.cpp - The devices of a plan and of a job ---------------===//

#include "planner/plan/PlanDevices.h"

#include <cassert>
#include <utility>

namespace tbc::planner {

StageDevices stageDevices(const Plan &plan) {
  Result<StageDevices> devices =
      StageDevices::make(plan.cluster, plan.mesh.pp, plan.mesh.numRanks() / plan.mesh.pp);
  assert(devices && "an applied plan keeps the types of devices apart");
  return std::move(*devices);
}

Status checkDevices(const Cluster &cluster, const Job &job, const MeshShape *pinned) {
  if (cluster.numDevices() > 0 && job.gpus > cluster.numDevices())
    return Error{ErrorCode::Usage, "--gpus " + std::to_string(job.gpus) + ": cluster " +
                                       cluster.name + " has " +
                                       std::to_string(cluster.numDevices()) + " devices (" +
                                       cluster.groupsText() + ")"};
  if (!pinned)
    return Status::ok();
  Result<StageDevices> devices =
      StageDevices::make(cluster, pinned->pp, pinned->numRanks() / pinned->pp);
  if (devices)
    return Status::ok();
  std::string mesh;
  for (auto [name, size] : pinned->axes())
    if (size > 1)
      mesh += (mesh.empty() ? "" : ",") + std::string(name) + "=" + std::to_string(size);
  return Error{ErrorCode::Usage, "--mesh " + mesh + ": " + devices.error().message};
}

reshard::OverlapSettings overlapOf(const Plan &plan) { return overlapOf(plan, plan.overlap); }

reshard::OverlapSettings overlapOf(const Plan &plan, reshard::OverlapSettings settings) {
  settings.joinsUpdates = executorOf(plan.cluster).joinsUpdates;
  return settings;
}

} // namespace tbc::planner
