//===- Causes.h - Why a collective runs -----------------------------------===//

#ifndef TBC_PLANNER_LAYOUT_CAUSES_H
#define TBC_PLANNER_LAYOUT_CAUSES_H

#include "planner/plan/PlanApply.h"
#include "planner/reshard/Overlap.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// Some executions of one collective, with their cause.
struct CausedCollective {
  reshard::Collective collective;
  int stage = 0;
  int64_t count = 0; // per step, on each rank of the stage
  /// When and for which kind of data it runs. Example: "gradient, once per step".
  std::string purpose;
  /// A parameter's module path, or the module and kind of the op that reads or produces the value.
  /// Numbers of repeats are stars; a bucket is named by its last member. Example:
  /// "transformer.h.*.attn.c_attn.weight".
  std::string cause;
};

/// Returns every collective of a derived step. Added up, they are countCollectives().
std::vector<CausedCollective> causedCollectives(const Job &job, const PlannedStep &step,
                                                const reshard::Derivation &derivation,
                                                const reshard::Overlap &overlap);

/// Returns the axes of a collective by name; a send is over "pp".
AxisNames axesOf(const reshard::Mesh &mesh, const reshard::Collective &collective);

} // namespace tbc::planner

#endif // TBC_PLANNER_LAYOUT_CAUSES_H
