//===- PlanDevices.h - The devices of a plan and of a job -----------------===//

#ifndef TBC_PLANNER_PLAN_PLANDEVICES_H
#define TBC_PLANNER_PLAN_PLANDEVICES_H

#include "planner/devices/StageDevices.h"
#include "planner/plan/Plan.h"

namespace tbc::planner {

/// Returns the devices of the stages of `plan`. The plan must outlive them, and be applied to a
/// graph.
StageDevices stageDevices(const Plan &plan);

/// Returns how `plan` joins and prefetches on its executor, with its own settings or with others.
reshard::OverlapSettings overlapOf(const Plan &plan);
reshard::OverlapSettings overlapOf(const Plan &plan, reshard::OverlapSettings settings);

/// Returns an error if `job`, on the pinned mesh if any, does not suit the devices of `cluster`.
Status checkDevices(const Cluster &cluster, const Job &job, const MeshShape *pinned);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_PLANDEVICES_H
