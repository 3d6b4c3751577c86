//===- Describe.h - Decisions of a plan in words --------------------------===//

#ifndef TBC_PLANNER_PLAN_DESCRIBE_H
#define TBC_PLANNER_PLAN_DESCRIBE_H

#include "planner/plan/Plan.h"

#include <string>

namespace tbc::planner {

/// Describes `plan` in one line. Example: "dp=2 fsdp=4, ZeRO-3, micro-batch 2 x 4, 1f1b, recompute
/// none".
std::string describe(const Plan &plan);
/// The same for another scored plan.
std::string describe(const Alternative &other);
/// Names the communication between ops on `mesh`. Example: "tp and cp communication". If no axis
/// splits the model: "communication between ops", because batch norms may still be synchronised.
std::string betweenOpsName(const MeshShape &mesh);
/// Names a ZeRO mode. Example: "ZeRO-1", "SHARD_GRAD_OP", "DDP".
std::string zeroName(int zero, bool keepGathered);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_DESCRIBE_H
