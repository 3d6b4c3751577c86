//===- LayoutFile.h - Placements and the layout in plan.json --------------===//

#ifndef TBC_PLANNER_PLAN_LAYOUTFILE_H
#define TBC_PLANNER_PLAN_LAYOUTFILE_H

#include "planner/plan/Layout.h"
#include "planner/support/JsonObject.h"

#include <nlohmann/json_fwd.hpp>

namespace tbc::planner {

/// The tensors of an op as in the key "strategies".
void putPlacement(const OpPlacement &placement, nlohmann::json &json);
OpPlacement readPlacement(JsonObject &object, KeyProblem &problem);

nlohmann::json layoutJson(const Layout &layout);
Layout readLayout(const nlohmann::json &json, KeyProblem &problem);

} // namespace tbc::planner

#endif // TBC_PLANNER_PLAN_LAYOUTFILE_H
