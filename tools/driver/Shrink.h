//===- Shrink.h - A step and a plan small enough to run here ---------------===//

#ifndef TBC_TOOLS_DRIVER_SHRINK_H
#define TBC_TOOLS_DRIVER_SHRINK_H

#include "planner/core/Plan.h"
#include "tools/driver/TrainingStep.h"

namespace tbc::driver {

/// A step and its plan with the same structure and smaller numbers.
struct Shrunk {
  std::unique_ptr<TrainingStep> step;
  planner::Plan plan;
  /// What was shrunk, one line each; empty if nothing was.
  std::vector<std::string> notes;
};

/// Shrinks what keeps a plan from being verified on one machine, and nothing else:
///  - a mesh of more than `ranks` ranks: every axis to 2, then pp to as many stages as `ranks`
///    allows; stages merge into the stage that begins where their first one did; all on devices of
///    the first type where the plan's are of several;
///  - where the model has more than 2^20 parameters, every factor whose size is not bound to
///    another's (see resizableFactors): to 4, 6 or 8, to 5 or 7 where it is odd, always to a
///    multiple of the axes that split it;
///  - with either, accumulation, to what fills the pipeline and empties it again, and with smaller
///    factors micro-batches, to 2 samples.
///
/// Weights of shrunk parameters are seeded, not read. The numbers in plan.prediction are those of
/// the plan as it was.
///
/// Errors: Usage if `ranks` cannot hold an axis of 2 for every axis of the plan, or the plan is not
/// for this model.
Result<Shrunk> shrink(const TrainingStep &step, const planner::Plan &plan, int64_t ranks);

/// The same, whatever the model's size, with every resizable factor `each` times the number of the
/// parts that its axes split it into, where that is less than it is. Example: with `each` = 1 the
/// ff = 64 of a plan with tp=4 becomes 4, 1 on each rank.
Result<Shrunk> shrinkTo(const TrainingStep &step, const planner::Plan &plan, int64_t ranks,
                        int64_t each);

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_SHRINK_H
