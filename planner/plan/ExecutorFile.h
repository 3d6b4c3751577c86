//===- ExecutorFile.h - The executor in plan.json --------------------------===//

#ifndef TBC_PLANNER_PLAN_EXECUTORFILE_H
#define TBC_PLANNER_PLAN_EXECUTORFILE_H

#include "planner/devices/Executor.h"
#include "planner/support/JsonObject.h"

#include <nlohmann/json_fwd.hpp>

namespace tbc::planner {

/// Returns the key cluster.executor: constants of an executor beside those of the cluster.
nlohmann::json executorJson(const Executor &executor);

/// The inverse. Keys that older plans lack have the values of tbc.
Executor readExecutor(JsonObject &cluster, KeyProblem &problem);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_EXECUTORFILE_H
