//===- StageNetworks.cpp - Seconds of collectives by stage ----------------===//

#include "planner/cost/StageNetworks.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace tbc::reshard;

namespace tbc::planner {

StageNetworks::StageNetworks(const StageDevices &devices, const Mesh &mesh, int pipelineAxis)
    : devices(devices), pipelineAxis(pipelineAxis) {
  if (devices.isUniform()) {
    networks.push_back(std::make_shared<NetworkCost>(devices.of(0), mesh, pipelineAxis));
    return;
  }
  const int64_t stages = pipelineAxis < 0 ? 1 : mesh.axes[size_t(pipelineAxis)].size;
  Mesh inside = mesh; // a stage's ranks alone
  if (pipelineAxis >= 0)
    inside.axes[size_t(pipelineAxis)].size = 1;
  std::map<StageKind, std::shared_ptr<const NetworkCost>> known;
  for (int stage = 0; stage < int(stages); ++stage) {
    std::shared_ptr<const NetworkCost> &network = known[devices.kindOf(stage)];
    if (!network)
      network = std::make_shared<NetworkCost>(devices.of(stage), inside);
    networks.push_back(network);
  }
  all = std::make_shared<NetworkCost>(devices.slowest(), mesh, pipelineAxis);
}

double StageNetworks::betweenStages(CollectiveKind kind, const std::vector<int> &stages,
                                    double bytes) const {
  if (devices.isUniform())
    return of(0).seconds(kind, of(0).stageGroupShape(stages), bytes);
  const Group &group =
      groups.get(stages, [&] { return Group{devices.shapeOf(stages), devices.networkOf(stages)}; });
  return networkSeconds(group.network.intraNode, group.network.interNode, kind, group.shape, bytes);
}

double StageNetworks::seconds(const Collective &collective, int stage) const {
  if (collective.kind == CollectiveKind::ShardSlice)
    return 0;
  if (!collective.stages.empty())
    return betweenStages(collective.kind, collective.stages, double(collective.bytes));
  return seconds(collective.kind, collective.axes, stage, double(collective.bytes));
}

double StageNetworks::seconds(CollectiveKind kind, const std::vector<AxisRef> &axes, int stage,
                              double bytes) const {
  bool isOverStages = std::any_of(axes.begin(), axes.end(),
                                  [&](const AxisRef &axis) { return axis.axis == pipelineAxis; });
  const NetworkCost &network = isOverStages && !devices.isUniform() ? *all : of(stage);
  return network.seconds(kind, network.groupShape(axes), bytes);
}

double StageNetworks::sendSeconds(int from, int to, double bytes) const {
  return betweenStages(CollectiveKind::Send, {from, to}, bytes);
}

double StageNetworks::sendSeconds(int from, double bytes) const {
  if (devices.isUniform())
    return sendSeconds(from, from + 1, bytes);
  double slowest = 0;
  for (int to : {from - 1, from + 1})
    if (to >= 0 && to < int(networks.size()))
      slowest = std::max(slowest, sendSeconds(std::min(from, to), std::max(from, to), bytes));
  return slowest;
}

GroupShape worstGroup(const StageDevices &devices, const StageNetworks &networks, const Mesh &mesh,
                      int pipelineAxis, int axis) {
  const int stages = pipelineAxis < 0 ? 1 : int(mesh.axes[size_t(pipelineAxis)].size);
  if (!devices.isUniform() && axis == pipelineAxis) {
    std::vector<int> all(static_cast<size_t>(stages));
    std::iota(all.begin(), all.end(), 0);
    return devices.shapeOf(all);
  }
  GroupShape worst = networks.of(0).groupShape({wholeAxis(mesh, axis)});
  for (int stage = 1; stage < stages && !devices.isUniform(); ++stage)
    if (GroupShape group = networks.of(stage).groupShape({wholeAxis(mesh, axis)});
        group.nodes > worst.nodes)
      worst = group;
  return worst;
}

} // namespace tbc::planner
