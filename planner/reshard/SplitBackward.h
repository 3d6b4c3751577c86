//===- SplitBackward.h - Splits the backward into dgrad and wgrad ----------===//

#ifndef TBC_PLANNER_RESHARD_SPLITBACKWARD_H
#define TBC_PLANNER_RESHARD_SPLITBACKWARD_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::reshard {

/// Per op, whether it is of the backward and only gradients of parameters, and the ops that sum
/// them up, wait for it: no result is, or goes into, the cotangent of a value that depends on the
/// data, or is wanted by another chunk. Zero-bubble schedules run these ops later (Qi et al., 2023,
/// "Zero Bubble Pipeline Parallelism", section 2).
std::vector<bool> weightOps(const Graph &graph);

/// Puts those ops into the weight phase.
void splitBackward(Graph &graph);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SPLITBACKWARD_H
