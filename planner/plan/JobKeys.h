//===- JobKeys.h - The model and the job in plan.json ----------------------===//

#ifndef TBC_PLANNER_PLAN_JOBKEYS_H
#define TBC_PLANNER_PLAN_JOBKEYS_H

#include "planner/plan/Job.h"
#include "planner/support/JsonObject.h"

#include <nlohmann/json_fwd.hpp>

namespace tbc::planner {

/// Returns the key job: all of `job` except the model.
nlohmann::json jobJson(const Job &job);
/// Returns the key model: its path and hashes, and padded vocabularies.
nlohmann::json modelJson(const Job &job);

/// The inverse of both. Keys that older plans lack have their defaults.
void readJob(JsonObject &root, KeyProblem &problem, Job &job);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_JOBKEYS_H
