//===- GroupShape.h - The ranks of a group over nodes ---------------------===//

#ifndef TBC_PLANNER_DEVICES_GROUPSHAPE_H
#define TBC_PLANNER_DEVICES_GROUPSHAPE_H

#include <cstdint>

namespace tbc::planner {

/// The distribution of the ranks of a group over nodes; for several groups along the same axes, the
/// worst.
struct GroupShape {
  int64_t size = 1;
  int64_t nodes = 1;
  int64_t perNode = 1; // the fewest ranks of the group on one of its nodes
};

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_GROUPSHAPE_H
