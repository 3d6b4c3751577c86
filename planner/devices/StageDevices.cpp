//===- StageDevices.cpp - The devices of each pipeline stage --------------===//

#include "planner/devices/StageDevices.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <set>

namespace tbc::planner {

StageDevices::StageDevices(const Cluster &cluster) : whole(&cluster) {
  assert(!cluster.isMixed() && "of a mixed cluster it depends on the mesh");
}

int StageDevices::groupOf(int64_t rank) const {
  return int(std::upper_bound(firstRank.begin(), firstRank.end(), rank) - firstRank.begin()) - 1;
}

int64_t StageDevices::nodeOf(int64_t rank) const {
  size_t group = size_t(groupOf(rank));
  return firstNode[group] + (rank - firstRank[group]) / whole->groups[group].devicesPerNode;
}

/// Returns the largest run length such that every run shares a node, if ranks [first, last) are cut
/// into runs of this length.
int64_t StageDevices::commonNode(int64_t first, int64_t last) const {
  int64_t common = 0;
  for (size_t group = size_t(groupOf(first)); group <= size_t(groupOf(last - 1)); ++group) {
    int64_t size = whole->groups[group].devicesPerNode, begin = firstRank[group];
    // The first two node ends after `first` suffice: the others follow in steps of a node.
    int64_t end = begin + (std::max(first, begin) - begin) / size * size;
    for (int64_t i = 0; i < 3; ++i, end += size)
      if (end > first && end < last && end <= firstRank[group + 1])
        common = std::gcd(common, end - first);
  }
  return common > 0 ? common : last - first;
}

/// Returns the names of the devices of ranks [first, last), in order.
std::string StageDevices::typesOf(int64_t first, int64_t last) const {
  std::string text;
  for (int group = groupOf(first), end = groupOf(last - 1); group <= end; ++group) {
    const Cluster &of = whole->groups[size_t(group)];
    int64_t low = std::max(first, firstRank[size_t(group)]),
            high = std::min(last, firstRank[size_t(group) + 1]);
    text += (text.empty() ? "" : " and ") + std::to_string(high - low) + " x " + of.name;
  }
  return text;
}

bool keepsTypesApart(const Cluster &cluster, int64_t stages, int64_t ranksPerStage) {
  int64_t first = 0; // rank of a group
  for (size_t group = 0; group < cluster.groups.size(); ++group) {
    bool isNew = group > 0 && first < stages * ranksPerStage &&
                 !haveSameDevices(cluster.groups[group - 1], cluster.groups[group]);
    if (isNew && first % ranksPerStage != 0)
      return false;
    first += cluster.groups[group].numNodes * cluster.groups[group].devicesPerNode;
  }
  return true;
}

/// Returns the smallest numbers of stages with one device type per stage, for the first `ranks`
/// devices. Example: "pp=2, pp=4".
static std::string possibleStages(const Cluster &cluster, int64_t ranks, int64_t but) {
  std::string text;
  int found = 0;
  for (int64_t stages = 2; stages <= ranks && found < 3; ++stages)
    if (stages != but && ranks % stages == 0 && keepsTypesApart(cluster, stages, ranks / stages)) {
      text += (text.empty() ? "pp=" : ", pp=") + std::to_string(stages);
      ++found;
    }
  return text;
}

static Network networkIn(const Cluster &cluster) { return {cluster.intraNode, cluster.interNode}; }

Result<StageDevices> StageDevices::make(const Cluster &cluster, int64_t stages,
                                        int64_t ranksPerStage) {
  const int64_t ranks = stages * ranksPerStage;
  if (cluster.numDevices() > 0 && ranks > cluster.numDevices())
    return Error{ErrorCode::Usage, std::to_string(ranks) + " ranks are more than the " +
                                       std::to_string(cluster.numDevices()) +
                                       " devices of cluster " + cluster.name + " (" +
                                       cluster.groupsText() + ")"};
  if (!cluster.isMixed())
    return StageDevices(cluster);
  StageDevices devices(cluster, ranksPerStage);
  const std::vector<Cluster> &groups = cluster.groups;
  devices.firstRank = devices.firstNode = {0};
  for (const Cluster &group : groups) {
    devices.firstRank.push_back(devices.firstRank.back() + group.numNodes * group.devicesPerNode);
    devices.firstNode.push_back(devices.firstNode.back() + group.numNodes);
  }
  std::vector<int> same; // by group: the first group with the same devices
  for (const Cluster &group : groups)
    same.push_back(int(std::find_if(groups.begin(), groups.end(),
                                    [&](const Cluster &o) { return haveSameDevices(o, group); }) -
                       groups.begin()));
  std::map<StageKind, std::shared_ptr<const Cluster>> known;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t first = stage * ranksPerStage, last = first + ranksPerStage;
    const int low = devices.groupOf(first), high = devices.groupOf(last - 1);
    StageKind kind{same[size_t(low)], devices.commonNode(first, last), low != high};
    for (int group = low; group <= high; ++group) {
      if (same[size_t(group)] == kind.group)
        continue;
      std::string other = possibleStages(cluster, ranks, stages);
      return Error{
          ErrorCode::Usage,
          (stages == 1
               ? "without pipeline stages, ranks "
               : "stage " + std::to_string(stage) + " of " + std::to_string(stages) + ", ranks ") +
              std::to_string(first) + " to " + std::to_string(last - 1) + ", would be " +
              devices.typesOf(first, last) +
              ": device types may differ between pipeline stages, not over dp, fsdp, ep, cp or "
              "tp; " +
              (other.empty() ? "no number of stages keeps them apart on " + std::to_string(ranks) +
                                   " devices: take another --gpus"
                             : "on " + std::to_string(ranks) + " devices a mesh with " + other +
                                   " keeps them apart")};
    }
    std::shared_ptr<const Cluster> &of = known[kind];
    if (!of) {
      auto made = std::make_shared<Cluster>(groups[size_t(kind.group)]);
      made->devicesPerNode = kind.devicesPerNode;
      if (kind.isParted && cluster.betweenGroups)
        made->interNode = slowerOf(made->interNode, *cluster.betweenGroups);
      of = std::move(made);
    }
    devices.kinds.push_back(kind);
    devices.clusters.push_back(of);
  }
  // Groups beyond the used ranks are ignored.
  const int used = devices.groupOf(ranks - 1) + 1;
  auto slowest = std::make_shared<Cluster>(groups[0]);
  Network network = networkIn(groups[0]);
  for (int group = 1; group < used; ++group)
    if (same[size_t(group)] == group)
      network = slowerOf(network, networkIn(groups[size_t(group)]));
  if (used > 1 && cluster.betweenGroups)
    network.interNode = slowerOf(network.interNode, *cluster.betweenGroups);
  slowest->intraNode = std::move(network.intraNode);
  slowest->interNode = std::move(network.interNode);
  slowest->devicesPerNode = devices.commonNode(0, ranks);
  devices.all = std::move(slowest);
  return devices;
}

GroupShape StageDevices::shapeOf(const std::vector<int> &stages) const {
  GroupShape shape;
  shape.size = shape.perNode = int64_t(stages.size());
  for (int64_t rank = 0; rank < ranksPerStage; ++rank) {
    std::map<int64_t, int64_t> onNode;
    for (int stage : stages)
      ++onNode[nodeOf(stage * ranksPerStage + rank)];
    shape.nodes = std::max(shape.nodes, int64_t(onNode.size()));
    for (const auto &[node, count] : onNode)
      shape.perNode = std::min(shape.perNode, count);
  }
  return shape;
}

Network StageDevices::networkOf(const std::vector<int> &stages) const {
  std::set<int> used;
  bool isParted = false;
  for (int stage : stages) {
    isParted |= kindOf(stage).isParted;
    for (int64_t rank : {stage * ranksPerStage, (stage + 1) * ranksPerStage - 1})
      used.insert(groupOf(rank));
  }
  if (used.size() > 2)
    return networkIn(*all);
  const Network first = networkIn(whole->groups[size_t(*used.begin())]),
                last = networkIn(whole->groups[size_t(*used.rbegin())]);
  if (used.size() == 1)
    return first;
  Network link = slowerOf(first, last);
  if (!whole->betweenGroups)
    return link;
  // If each of two stages lies in one group, their ranks are on nodes of both groups. Otherwise two
  // ranks may be on two nodes of one group.
  bool isApart = stages.size() == 2 && !isParted;
  link.interNode =
      isApart ? *whole->betweenGroups : slowerOf(link.interNode, *whole->betweenGroups);
  return link;
}

} // namespace tbc::planner
