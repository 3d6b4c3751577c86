//===- MeshView.cpp - A mesh on nodes and links ----------------------------===//

#include "planner/view/MeshView.h"
#include "planner/cost/StageNetworks.h"
#include "planner/plan/PlanDevices.h"
#include "planner/view/Facts.h"
#include "runtime/mesh/AxisIndex.h"

#include <algorithm>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

/// Returns the nodes of the cluster that have a rank of the plan, in order.
static std::vector<NodeView> nodesOf(const Plan &plan) {
  std::vector<NodeView> nodes;
  const int64_t ranks = plan.mesh.numRanks();
  int64_t first = 0;
  auto add = [&](const Cluster &kind, int64_t count) {
    for (int64_t i = 0; (count == 0 || i < count) && first < ranks; ++i) {
      nodes.push_back({int64_t(nodes.size()), first, kind.devicesPerNode, kind.name});
      first += kind.devicesPerNode;
    }
  };
  for (const Cluster &group : plan.cluster.groups)
    add(group, group.numNodes);
  if (plan.cluster.groups.empty())
    add(plan.cluster, 0);
  return nodes;
}

/// Returns the distribution over nodes of the worst group along `axes`.
static GroupShape shapeOf(const Plan &plan, const StageDevices &devices,
                          const StageNetworks &networks, const Mesh &mesh,
                          const std::vector<std::string> &axes) {
  std::vector<AxisRef> references;
  bool overStages = false;
  for (const std::string &axis : axes) {
    references.push_back(wholeAxis(mesh, mesh.axisIndex(axis)));
    overStages |= mesh::parseAxis(axis) == Axis::Pipeline;
  }
  if (!devices.isUniform() && overStages) {
    std::vector<int> stages;
    for (int stage = 0; stage < int(plan.mesh.pp); ++stage)
      stages.push_back(stage);
    GroupShape shape = devices.shapeOf(stages);
    shape.size = groupSize(references);
    return shape;
  }
  GroupShape worst = networks.of(0).groupShape(references);
  for (int stage = 1; stage < int(plan.mesh.pp) && !devices.isUniform(); ++stage)
    if (GroupShape group = networks.of(stage).groupShape(references); group.nodes > worst.nodes)
      worst = group;
  return worst;
}

static std::vector<std::string> splitNames(const std::string &axes) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < axes.size();) {
    size_t end = std::min(axes.find('+', begin), axes.size());
    names.push_back(axes.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

/// Returns a row for every axis of `mesh`, and for every joint group of a collective.
static std::vector<LinkView> linksOf(const Plan &plan, const Mesh &mesh) {
  const StageDevices devices = stageDevices(plan);
  const StageNetworks networks(devices, mesh, axisIndex(mesh, Axis::Pipeline));
  std::map<std::string, std::map<int, LinkView>> byStage;
  for (const CollectiveLine &line : plan.prediction.collectives) {
    LinkView &sum = byStage[line.count.axes][line.count.stage];
    sum.bytes += double(line.count.bytes) * double(line.count.count);
    sum.seconds += line.seconds * double(line.count.count);
    sum.count += line.count.count;
  }
  std::vector<std::string> keys;
  for (const MeshAxis &axis : mesh.axes)
    keys.push_back(axis.name);
  for (const auto &[axes, stages] : byStage)
    if (axes.find('+') != std::string::npos)
      keys.push_back(axes);
  std::vector<LinkView> links;
  for (const std::string &key : keys) {
    LinkView link;
    for (const auto &[stage, sum] : byStage[key])
      if (sum.seconds >= link.seconds)
        link = sum;
    link.axes = splitNames(key);
    auto isKnown = [&](const std::string &name) { return mesh.axisIndex(name) >= 0; };
    if (!std::all_of(link.axes.begin(), link.axes.end(), isKnown))
      continue; // of a plan edited by hand
    link.shape = shapeOf(plan, devices, networks, mesh, link.axes);
    link.size = link.shape.size;
    links.push_back(link);
  }
  return links;
}

MeshView meshView(const Plan &plan) {
  MeshView view;
  const Mesh mesh = plan.mesh.mesh();
  for (const MeshAxis &axis : mesh.axes)
    view.axes.push_back({axis.name, axis.size});
  view.ranks = plan.mesh.numRanks();
  view.ranksPerStage = view.ranks / plan.mesh.pp;
  const char *most = plan.cluster.groups.empty() ? "" : "up to ";
  view.intraNode = most + rateText(plan.cluster.intraNode.bytesPerSecond, "B");
  view.interNode = most + rateText(plan.cluster.interNode.bytesPerSecond, "B");
  view.drawn = nodesOf(plan);
  view.nodes = int64_t(view.drawn.size());
  if (view.nodes > mostNodes)
    view.drawn.erase(view.drawn.begin() + (mostNodes - 1), view.drawn.end() - 1);
  view.links = linksOf(plan, mesh);
  return view;
}

} // namespace tbc::planner
