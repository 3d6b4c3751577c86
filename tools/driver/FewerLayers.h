//===- FewerLayers.h - A step and its plan with fewer repeated layers ------===//

#ifndef TBC_TOOLS_DRIVER_FEWERLAYERS_H
#define TBC_TOOLS_DRIVER_FEWERLAYERS_H

#include "planner/plan/Plan.h"
#include "tools/driver/TrainingStep.h"

#include <memory>
#include <string>
#include <vector>

namespace tbc::driver {

/// A step and its plan without some of the repeats of equal layers.
struct FewerLayers {
  /// Null if every layer stays.
  std::unique_ptr<TrainingStep> step;
  planner::Plan plan;
  /// One line per shortened block. Example: "equal layers 31 -> 3 (model.layers.*;
  /// --all-layers: all)".
  std::vector<std::string> notes;
};

/// Leaves out repeats of equal layers with equal decisions: of each run of them on a stage the
/// first and the last one stay, and one more of the longest run (`planner::omitRepeats`). Layers
/// are equal if their ops have the same attributes and sizes on corresponding operands. Their
/// decisions are the chunk, the split of each op, recomputation, offloading, and the storage of
/// each parameter.
///
/// The step is differentiated again. Ops that stay keep their ids and the plan's decisions for
/// them.
///
/// Errors: those of `applyPlan`; Other if the smaller step takes another decision for an op, which
/// is a bug.
Result<FewerLayers> withFewerLayers(const TrainingStep &step, const planner::Plan &plan);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_FEWERLAYERS_H
