//===- PlanNames.h - Words of plan.json ------------------------------------===//

#ifndef TBC_PLANNER_PLAN_PLANNAMES_H
#define TBC_PLANNER_PLAN_PLANNAMES_H

#include "planner/plan/Reasons.h"

namespace tbc::planner {

/// The version of plan.json; only plans of this version are read.
constexpr int planVersion = 6;

/// Returns the words for forms of context parallelism: "ring", "all-gather", "all-to-all".
inline std::vector<std::string> contextWords() {
  using reshard::ContextForm;
  return {name(ContextForm::Ring), name(ContextForm::AllGather), name(ContextForm::AllToAll)};
}

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

#endif // TBC_PLANNER_PLAN_PLANNAMES_H
