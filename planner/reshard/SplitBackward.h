//===- SplitBackward.h - Splits the backward into dgrad and wgrad ----------===//

#ifndef TBC_PLANNER_RESHARD_SPLITBACKWARD_H
#define TBC_PLANNER_RESHARD_SPLITBACKWARD_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::reshard {

/// Returns, per op, whether it is wgrad: a backward op needed only by gradients of parameters and
/// their sums. Its results do not go into the cotangent of a data-dependent value, or to another
/// chunk. Additive ops stay with results of an op that cannot wait, such as experts, whose one op
/// makes dx and dw. Zero-bubble schedules run these ops later (Qi et al., 2023, "Zero Bubble
/// Pipeline Parallelism", section 2). Example: in y = x w, dw = x' dy can wait, and dx = dy w'
/// cannot.
std::vector<bool> weightOps(const Graph &graph);

/// Puts these ops into the weight phase.
void splitBackward(Graph &graph);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SPLITBACKWARD_H
