//===- PlanNames.h - Words of plan.json ------------------------------------===//

#ifndef TBC_PLANNER_CORE_PLANNAMES_H
#define TBC_PLANNER_CORE_PLANNAMES_H

#include "planner/core/Plan.h"

namespace tbc::planner {

/// Of plan.json: a tbc reads plans of its own version.
constexpr int planVersion = 5;

inline const char *name(Origin origin) {
  switch (origin) {
  case Origin::Pinned:
    return "pinned";
  case Origin::Solved:
    return "solved";
  case Origin::Propagated:
    return "propagated";
  case Origin::Forced:
    return "forced";
  }
  return "";
}

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PLANNAMES_H
