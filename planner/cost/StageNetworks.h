//===- StageNetworks.h - Seconds of collectives by stage ------------------===//

#ifndef TBC_PLANNER_COST_STAGENETWORKS_H
#define TBC_PLANNER_COST_STAGENETWORKS_H

#include "planner/cost/Cost.h"
#include "planner/devices/StageDevices.h"
#include "planner/support/OnceMap.h"

#include <memory>
#include <vector>

namespace tbc::planner {

/// Prices collectives on the devices of their stages.
class StageNetworks {
public:
  /// `devices` outlives this.
  StageNetworks(const StageDevices &devices, const reshard::Mesh &mesh, int pipelineAxis);

  /// The cost of collectives within stage `stage`.
  const NetworkCost &of(int stage) const {
    return *networks[devices.isUniform() ? 0 : size_t(stage)];
  }
  /// Returns the seconds of `collective` for stage `stage`.
  double seconds(const reshard::Collective &collective, int stage) const;
  /// The same, over the whole `axes`, which may include pp.
  double seconds(reshard::CollectiveKind kind, const std::vector<reshard::AxisRef> &axes, int stage,
                 double bytes) const;
  double sendSeconds(int from, int to, double bytes) const;
  /// Returns the seconds of a send to the farther neighbour of stage `from`.
  double sendSeconds(int from, double bytes) const;

private:
  /// The distribution of the ranks of several stages, and their network.
  struct Group {
    GroupShape shape;
    Network network;
  };
  double betweenStages(reshard::CollectiveKind kind, const std::vector<int> &stages,
                       double bytes) const;

  const StageDevices &devices;
  int pipelineAxis;
  std::vector<std::shared_ptr<const NetworkCost>> networks; // by stage, or one
  std::shared_ptr<const NetworkCost> all;                   // of collectives over pp
  mutable OnceMap<std::vector<int>, Group> groups;          // by stages
};

/// Returns the distribution over nodes of the worst group along axis `axis` of `mesh`.
/// `pipelineAxis`: the axis of stages, or -1.
GroupShape worstGroup(const StageDevices &devices, const StageNetworks &networks,
                      const reshard::Mesh &mesh, int pipelineAxis, int axis);

} // namespace tbc::planner

#endif // TBC_PLANNER_COST_STAGENETWORKS_H
