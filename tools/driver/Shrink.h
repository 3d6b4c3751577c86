//===- Shrink.h - Shrink a step and a plan to run on this machine ----------===//

#ifndef TBC_TOOLS_DRIVER_SHRINK_H
#define TBC_TOOLS_DRIVER_SHRINK_H

#include "planner/plan/Plan.h"
#include "tools/driver/TrainingStep.h"

namespace tbc::driver {

/// A step and its plan with the same structure and smaller numbers.
struct Shrunk {
  std::unique_ptr<TrainingStep> step;
  planner::Plan plan;
  /// One line per shrunk quantity; empty if the plan is unchanged.
  std::vector<std::string> notes;
};

struct ShrinkOptions {
  int64_t ranks = 16;     // at most
  bool allLayers = false; // no repeat is left out
};

/// Shrinks a plan until it can be verified on one machine:
///   - A mesh of more than `ranks` ranks: every axis to 2, then pp to as many stages as `ranks`
///     allows. Merged stages begin at the first of their old stages. With several device types, all
///     stages move to the first type.
///   - A step of more than 500 ops, or a model of more than 2^20 parameters: repeats of equal
///     layers are left out (`withFewerLayers`).
///   - A model of more than 2^20 parameters: every factor with a free size (see
///     resizableFactors) to 4, 6 or 8, or to 5 or 7 if it is odd, always a multiple of the axes
///     that split it.
///   - With any of them: accumulation to fill and drain the pipeline once. With smaller factors:
///     micro-batches to 2 samples.
///
/// Weights of shrunk parameters are seeded, not read. `plan.prediction` keeps the numbers of the
/// original plan.
///
/// Errors: Usage if `ranks` cannot hold an axis of 2 for every axis of the plan, or the plan is not
/// for this model. Those of `withFewerLayers`.
Result<Shrunk> shrink(const TrainingStep &step, const planner::Plan &plan,
                      const ShrinkOptions &options);

/// Like `shrink`, whatever the model's size, but every resizable factor becomes `each` times the
/// number of parts of its split, if that is smaller. Example: with `each` = 1 the ff = 64 of a plan
/// with tp=4 becomes 4, 1 on each rank.
Result<Shrunk> shrinkTo(const TrainingStep &step, const planner::Plan &plan,
                        const ShrinkOptions &options, int64_t each);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_SHRINK_H
