//===- MeshView.h - A mesh on nodes and links ------------------------------===//

#ifndef TBC_PLANNER_VIEW_MESHVIEW_H
#define TBC_PLANNER_VIEW_MESHVIEW_H

#include "planner/devices/GroupShape.h"
#include "planner/plan/Plan.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// One axis of the mesh, or several with common collectives, and the traffic of its groups.
struct LinkView {
  std::vector<std::string> axes;
  int64_t size = 1; // ranks of a group
  GroupShape shape;
  double bytes = 0; // of all collectives of one step on the busiest stage, per rank
  double seconds = 0;
  int64_t count = 0;
};

/// A node that is drawn.
struct NodeView {
  int64_t index = 0, firstRank = 0, devices = 1;
  std::string device; // name of the cluster of its group
};

struct MeshView {
  std::vector<std::pair<std::string, int64_t>> axes; // longer than 1, the slowest first
  int64_t ranks = 1, nodes = 1, ranksPerStage = 1;
  std::string intraNode, interNode; // bandwidth of one device, for people
  std::vector<LinkView> links;
  /// At most `mostNodes`: the first ones, and the last if others are left out. Nodes after the last
  /// rank are left out.
  std::vector<NodeView> drawn;
};

/// The most nodes of a picture.
inline constexpr int64_t mostNodes = 48;

/// Returns the mesh of `plan` on its cluster. Ranks fill the nodes in order.
MeshView meshView(const Plan &plan);

} // namespace tbc::planner

#endif // TBC_PLANNER_VIEW_MESHVIEW_H
