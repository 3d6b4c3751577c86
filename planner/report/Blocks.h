//===- Blocks.h - The layer table -----------------------------------------===//

#ifndef TBC_PLANNER_REPORT_BLOCKS_H
#define TBC_PLANNER_REPORT_BLOCKS_H

#include "planner/plan/Plan.h"
#include "planner/plan/PlanApply.h"

#include <vector>

namespace tbc::planner {

/// Returns the blocks of the layer table of `plan`, priced on its applied step. Repeated blocks
/// appear once if `folded`, else each repeat separately.
std::vector<BlockRow> blockRows(const reshard::Graph &graph, const PlannedStep &step,
                                const Plan &plan, bool folded = true);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_BLOCKS_H
