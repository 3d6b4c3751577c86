//===- ClusterGroups.cpp - Clusters of heterogeneous nodes ----------------===//

#include "planner/devices/Cluster.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace tbc::planner {

bool Cluster::isMixed() const {
  return betweenGroups || std::any_of(groups.begin(), groups.end(), [&](const Cluster &group) {
           return group.devicesPerNode != groups[0].devicesPerNode ||
                  !haveSameDevices(group, groups[0]);
         });
}

int64_t Cluster::numDevices() const {
  int64_t devices = 0;
  for (const Cluster &group : groups)
    devices += group.numNodes * group.devicesPerNode;
  return devices;
}

std::string Cluster::groupsText() const {
  std::string text;
  for (size_t i = 0; i < groups.size(); ++i)
    text += (i == 0                  ? ""
             : i + 1 < groups.size() ? ", "
                                     : " and ") +
            std::to_string(groups[i].numNodes) + (groups[i].numNodes == 1 ? " node" : " nodes") +
            " of " + std::to_string(groups[i].devicesPerNode) + " x " + groups[i].name;
  return text;
}

NetworkLevel slowerOf(const NetworkLevel &a, const NetworkLevel &b) {
  NetworkLevel slower;
  slower.latencySeconds = std::max(a.latencySeconds, b.latencySeconds);
  slower.bytesPerSecond = std::min(a.bytesPerSecond, b.bytesPerSecond);
  slower.startSeconds = std::max(a.startSeconds, b.startSeconds);
  for (const auto *groups : {&a.groupBytesPerSecond, &b.groupBytesPerSecond})
    for (const auto &[devices, bytesPerSecond] : *groups)
      slower.groupBytesPerSecond[devices] = std::min(a.bandwidth(devices), b.bandwidth(devices));
  slower.smallFraction = std::min(a.smallFraction, b.smallFraction);
  // Without rings on one side the result has no rings and no switch. The switch uses ring steps; it
  // is an additional algorithm, and the fastest counts.
  bool differ = (a.ringStepSeconds > 0) != (b.ringStepSeconds > 0);
  slower.ringStepSeconds = differ ? 0 : std::max(a.ringStepSeconds, b.ringStepSeconds);
  slower.switchBytesPerSecond =
      differ ? 0 : std::min(a.switchBytesPerSecond, b.switchBytesPerSecond);
  return slower;
}

Network slowerOf(const Network &a, const Network &b) {
  Network slower{slowerOf(a.intraNode, b.intraNode), slowerOf(a.interNode, b.interNode)};
  // Rings between nodes also run inside them. There they would be free without ring steps.
  if ((a.intraNode.ringStepSeconds > 0) != (b.intraNode.ringStepSeconds > 0))
    slower.interNode.ringStepSeconds = 0;
  return slower;
}

namespace {

/// Returns the largest, or the smallest, value of any group.
template <typename Get> auto mostOf(const std::vector<Cluster> &groups, Get get) {
  auto most = get(groups[0]);
  for (const Cluster &group : groups)
    most = std::max(most, get(group));
  return most;
}
template <typename Get> auto leastOf(const std::vector<Cluster> &groups, Get get) {
  auto least = get(groups[0]);
  for (const Cluster &group : groups)
    least = std::min(least, get(group));
  return least;
}

/// Returns the possible peaks of kernels of a class: matrix units by rate, or vector units. Classes
/// without a table are of both kinds. Only rates that every group has.
std::vector<std::function<double(const Cluster &)>> peaksOf(KernelKey key, const Cluster &best) {
  std::vector<std::function<double(const Cluster &)>> peaks;
  if (!key || isMatrixClass(*key))
    for (const auto &[rate, peak] : best.peakFlopsPerSecond)
      peaks.push_back(
          [rate = rate](const Cluster &cluster) { return cluster.peakFlopsPerSecond.at(rate); });
  if (!key || !isMatrixClass(*key))
    peaks.push_back([](const Cluster &c) { return c.vectorFlopsPerSecond; });
  return peaks;
}

/// Returns fractions of the peaks of `best`, at least as fast as the kernels of every group.
KernelEfficiency bestKernel(const std::vector<Cluster> &groups, const Cluster &best,
                            KernelKey key) {
  auto kernelOf = [&](const Cluster &group) -> const KernelEfficiency & {
    return group.kernel(key);
  };
  KernelEfficiency kernel;
  kernel.flopsFraction = 0;
  for (const auto &peak : peaksOf(key, best))
    kernel.flopsFraction =
        std::max(kernel.flopsFraction, mostOf(groups, [&](const Cluster &g) {
                                         return peak(g) * kernelOf(g).flopsFraction;
                                       }) / peak(best));
  kernel.memoryFraction = mostOf(groups,
                                 [&](const Cluster &g) {
                                   return g.memoryBytesPerSecond * kernelOf(g).memoryFraction;
                                 }) /
                          best.memoryBytesPerSecond;
  kernel.rampSeconds = leastOf(groups, [&](const Cluster &g) { return kernelOf(g).rampSeconds; });
  kernel.halfDepth = leastOf(groups, [&](const Cluster &g) { return kernelOf(g).halfDepth; });
  kernel.executedFraction =
      leastOf(groups, [&](const Cluster &g) { return kernelOf(g).executedFraction; });
  kernel.bytesPerFlop = leastOf(groups, [&](const Cluster &g) { return kernelOf(g).bytesPerFlop; });
  return kernel;
}

/// Returns one level for all devices in one node, with the best constants of every level. It is at
/// least as fast as any group of devices, with any distribution over nodes and any algorithm.
NetworkLevel bestNetwork(const std::vector<Cluster> &groups,
                         const std::optional<NetworkLevel> &between) {
  std::vector<NetworkLevel> levels;
  for (const Cluster &group : groups) {
    levels.push_back(group.intraNode);
    levels.push_back(group.interNode);
  }
  if (between)
    levels.push_back(*between);
  NetworkLevel best = levels[0];
  best.ringStepSeconds = 0; // tree steps are as short, and log2(n) of them instead of n
  best.smallFraction = 1;
  best.groupBytesPerSecond.clear();
  // Rings between nodes also run inside the nodes.
  bool spanNodes = between && between->ringStepSeconds > 0;
  for (const Cluster &group : groups)
    spanNodes |= group.interNode.ringStepSeconds > 0;
  for (const Cluster &group : groups)
    if (spanNodes)
      best.latencySeconds = std::min(best.latencySeconds, group.intraNode.ringStepSeconds);
  for (const NetworkLevel &level : levels) {
    best.latencySeconds = std::min(best.latencySeconds, level.latencySeconds);
    if (level.ringStepSeconds > 0)
      best.latencySeconds = std::min(best.latencySeconds, level.ringStepSeconds);
    best.startSeconds = std::min(best.startSeconds, level.startSeconds);
    best.bytesPerSecond = std::max(best.bytesPerSecond, level.bytesPerSecond);
    for (const auto &[devices, bytesPerSecond] : level.groupBytesPerSecond)
      best.bytesPerSecond = std::max(best.bytesPerSecond, bytesPerSecond);
    best.switchBytesPerSecond = std::max(best.switchBytesPerSecond, level.switchBytesPerSecond);
  }
  return best;
}

/// Returns the best value of any group for every number.
Cluster bestOf(const std::vector<Cluster> &groups, const std::optional<NetworkLevel> &between) {
  Cluster best = groups[0];
  auto most = [&](auto Cluster::*number) {
    best.*number = mostOf(groups, [&](const Cluster &group) { return group.*number; });
  };
  auto least = [&](auto Cluster::*number) {
    best.*number = leastOf(groups, [&](const Cluster &group) { return group.*number; });
  };
  most(&Cluster::memoryBytes);
  most(&Cluster::memoryBytesPerSecond);
  most(&Cluster::vectorFlopsPerSecond);
  for (auto rate = best.peakFlopsPerSecond.begin(); rate != best.peakFlopsPerSecond.end();) {
    const bool isEverywhere = std::all_of(groups.begin(), groups.end(), [&](const Cluster &group) {
      return group.peakFlopsPerSecond.count(rate->first) > 0;
    });
    rate = isEverywhere ? std::next(rate) : best.peakFlopsPerSecond.erase(rate);
  }
  for (auto &[precision, peak] : best.peakFlopsPerSecond)
    peak = mostOf(groups, [&name = precision](const Cluster &group) {
      return group.peakFlopsPerSecond.at(name);
    });
  least(&Cluster::launchSeconds);
  least(&Cluster::floorSeconds);
  std::set<KernelKey> keys;
  for (const Cluster &group : groups)
    for (const auto &[key, kernel] : group.kernels)
      keys.insert(key);
  best.kernels.clear();
  for (KernelKey key : keys)
    best.kernels[key] = bestKernel(groups, best, key);
  best.intraNode = best.interNode = bestNetwork(groups, between);
  best.interNode.switchBytesPerSecond = 0; // the switch works only inside a node
  most(&Cluster::hostMemoryBytes);
  most(&Cluster::hostBytesPerSecond);
  most(&Cluster::overlapFraction);
  least(&Cluster::overlapSlowdown);
  most(&Cluster::timeUncertainty);
  most(&Cluster::contextUncertaintyBytes);
  most(&Cluster::allocatorUncertainty);
  least(&Cluster::contextBytes);
  least(&Cluster::allocatorFraction);
  least(&Cluster::reservedFraction);
  return best;
}

} // namespace

Result<Cluster> clusterOfGroups(const std::string &name, const std::string &description,
                                std::vector<Cluster> groups,
                                std::optional<NetworkLevel> betweenGroups) {
  if (groups.empty())
    return Error{ErrorCode::Usage, "nodes must be of one kind at least"};
  if (int64_t(groups.size()) > mostGroups)
    return Error{ErrorCode::Usage,
                 "nodes must be of at most " + std::to_string(mostGroups) + " kinds"};
  double devices = 0;
  std::map<std::string, const Cluster *> byName;
  for (const Cluster &group : groups) {
    devices += double(group.numNodes) * double(group.devicesPerNode);
    if (!haveSameDevices(*byName.try_emplace(group.name, &group).first->second, group))
      return Error{ErrorCode::Usage,
                   "nodes of two kinds are both called \"" + group.name +
                       "\", though they differ in more than their size; give one another name"};
  }
  if (devices > double(mostDevices))
    return Error{ErrorCode::Usage, "nodes have more than 1048576 devices together"};
  Cluster cluster;
  cluster.groups = groups;
  cluster.betweenGroups = betweenGroups;
  if (cluster.isMixed()) {
    cluster = bestOf(groups, betweenGroups);
    cluster.groups = std::move(groups);
    cluster.betweenGroups = std::move(betweenGroups);
    cluster.devicesPerNode = cluster.numDevices();
  } else {
    cluster = groups[0];
    cluster.groups = std::move(groups);
  }
  cluster.name = name;
  cluster.description = description;
  cluster.numNodes = 0;
  return cluster;
}

} // namespace tbc::planner
