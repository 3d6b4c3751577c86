//===- Split.h - One more axis on a loop of an op --------------------------===//

#ifndef TBC_PLANNER_RESHARD_SPLIT_H
#define TBC_PLANNER_RESHARD_SPLIT_H

#include "planner/reshard/Graph.h"

namespace tbc::reshard {

/// Puts `axes` at the end of loop `loop` of `strategy`, or before its other axes, if sizes, layouts
/// and the kind of the loop allow it. Returns whether they did.
bool trySplit(const Graph &graph, int op, OpStrategy &strategy, int loop,
              const std::vector<AxisRef> &axes, bool inFront = false);

} // namespace tbc::reshard

#endif // TBC_PLANNER_RESHARD_SPLIT_H
