//===- PartBackward.h - What of the backward can wait ----------------------===//

#ifndef TBC_PLANNER_CORE_PARTBACKWARD_H
#define TBC_PLANNER_CORE_PARTBACKWARD_H

#include "planner/reshard/Graph.h"

#include <vector>

namespace tbc::planner {

/// Per op, whether it is of the backward and nothing waits for it but the gradients of parameters
/// and what makes them up: none of its results is, or goes into, the cotangent of a value that
/// depends on the data, or is wanted by another chunk.
std::vector<bool> weightOps(const reshard::Graph &graph);

/// Puts those ops into the weight phase.
void partBackward(reshard::Graph &graph);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_PARTBACKWARD_H
