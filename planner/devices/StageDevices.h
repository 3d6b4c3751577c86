//===- StageDevices.h - The devices of each pipeline stage ----------------===//
//
// Plain C++. Ranks fill the nodes of a cluster in order, and pp is the slowest axis of the mesh, so
// a stage is a run of ranks. The devices of one stage have one type; two stages may have different
// types.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_DEVICES_STAGEDEVICES_H
#define TBC_PLANNER_DEVICES_STAGEDEVICES_H

#include "planner/devices/Cluster.h"
#include "planner/devices/GroupShape.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// The cost-relevant properties of a stage: its group (the first group with such devices), the
/// devices per node as seen by its collectives, and whether its nodes belong to several groups.
struct StageKind {
  int group = 0;
  int64_t devicesPerNode = 1;
  bool isParted = false;
  bool operator<(const StageKind &o) const {
    return std::tie(group, devicesPerNode, isParted) <
           std::tie(o.group, o.devicesPerNode, o.isParted);
  }
  bool operator==(const StageKind &o) const {
    return group == o.group && devicesPerNode == o.devicesPerNode && isParted == o.isParted;
  }
};

/// The homogeneous cluster of each pipeline stage.
class StageDevices {
public:
  /// All stages on `cluster`, which is not mixed and must outlive this.
  StageDevices(const Cluster &cluster);

  /// Divides `cluster`, which must outlive this, into `stages` stages of `ranksPerStage` ranks. On
  /// a mixed cluster, the collectives of a stage treat nodes of several sizes as nodes of their
  /// common divisor. Example: nodes of 8 and 4 devices count as nodes of 4. Errors: Usage if the
  /// cluster has too few devices, or a stage would have devices of several types. The message then
  /// names the stage, its ranks, their types, and the numbers of stages that avoid this.
  static Result<StageDevices> make(const Cluster &cluster, int64_t stages, int64_t ranksPerStage);

  /// Whether one cluster serves all stages.
  bool isUniform() const { return kinds.empty(); }
  const Cluster &of(int stage) const { return isUniform() ? *whole : *clusters[size_t(stage)]; }
  const StageKind &kindOf(int stage) const { return kinds[size_t(stage)]; }

  /// Only for a mixed cluster. Return the shape and the network of the worst group with one rank of
  /// each of `stages`, with the same coordinates except pp. The network is the slower of those of
  /// different groups.
  GroupShape shapeOf(const std::vector<int> &stages) const;
  Network networkOf(const std::vector<int> &stages) const;
  /// The same for all ranks: the slowest network, and a node size that divides all nodes.
  const Cluster &slowest() const { return *all; }

private:
  StageDevices(const Cluster &cluster, int64_t ranksPerStage)
      : whole(&cluster), ranksPerStage(ranksPerStage) {}
  int groupOf(int64_t rank) const;
  int64_t nodeOf(int64_t rank) const;
  int64_t commonNode(int64_t first, int64_t last) const;
  std::string typesOf(int64_t first, int64_t last) const;

  const Cluster *whole;
  int64_t ranksPerStage = 1;
  std::vector<int64_t> firstRank, firstNode; // by group, and the end
  std::vector<StageKind> kinds;              // by stage
  std::vector<std::shared_ptr<const Cluster>> clusters;
  std::shared_ptr<const Cluster> all;
};

/// Whether every stage has devices of one type; the cluster must have enough devices.
bool keepsTypesApart(const Cluster &cluster, int64_t stages, int64_t ranksPerStage);

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_STAGEDEVICES_H
