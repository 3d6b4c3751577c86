//===- StageDevices.h - What each pipeline stage runs on -------------------===//
//
// Plain C++. Ranks fill the nodes of a cluster in order, and pp is the slowest axis of the mesh, so
// a stage is a run of ranks. The devices of a stage are all of one type; those of two stages need
// not be.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_STAGEDEVICES_H
#define TBC_PLANNER_CORE_STAGEDEVICES_H

#include "planner/core/Cost.h"
#include "planner/core/Plan.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace tbc::planner {

/// What stages with the same costs have in common: the devices of a group (the first with such
/// devices), how many of them share a node as far as collectives of a stage can tell, and whether
/// its nodes are of several groups.
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
  /// All stages on `cluster`, which is not mixed and outlives this.
  StageDevices(const Cluster &cluster);

  /// `stages` stages of `ranksPerStage` ranks on `cluster`, which outlives this. On a mixed one
  /// nodes of several sizes count, for the collectives of a stage, as nodes of the size that
  /// divides all of them.
  /// Errors: Usage where the cluster has fewer devices; or a stage would have devices of several
  /// types: the stage, its ranks, their types, and the numbers of stages that keep them apart.
  static Result<StageDevices> make(const Cluster &cluster, int64_t stages, int64_t ranksPerStage);

  /// Whether there is one cluster for all.
  bool isUniform() const { return kinds.empty(); }
  const Cluster &of(int stage) const { return isUniform() ? *whole : *clusters[size_t(stage)]; }
  const StageKind &kindOf(int stage) const { return kinds[size_t(stage)]; }

  /// Only of a mixed cluster: how a group of one rank of each of `stages` lies on nodes, the ranks
  /// with the same coordinates beside pp; and the network of the worst of those, the slower one of
  /// different groups.
  GroupShape shapeOf(const std::vector<int> &stages) const;
  Network networkOf(const std::vector<int> &stages) const;
  /// The same of all ranks: a network as slow as the slowest, between nodes that divide all.
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

/// Whether no stage has devices of several types; there are as many devices as that.
bool keepsTypesApart(const Cluster &cluster, int64_t stages, int64_t ranksPerStage);

/// The devices of the stages of `plan`, which outlives them, and was applied to a graph.
StageDevices stageDevices(const Plan &plan);

/// Prices collectives on the devices of the stages that they run on.
class StageNetworks {
public:
  /// `devices` outlives this.
  StageNetworks(const StageDevices &devices, const reshard::Mesh &mesh, int pipelineAxis);

  /// Of collectives within stage `stage`.
  const NetworkCost &of(int stage) const {
    return *networks[devices.isUniform() ? 0 : size_t(stage)];
  }
  /// `collective` as stage `stage` takes part in it.
  double seconds(const reshard::Collective &collective, int stage) const;
  /// The same, over the whole `axes`, perhaps pp among them.
  double seconds(reshard::CollectiveKind kind, const std::vector<reshard::AxisRef> &axes, int stage,
                 double bytes) const;
  double sendSeconds(int from, int to, double bytes) const;
  /// To a neighbour of stage `from`, whichever is the farther.
  double sendSeconds(int from, double bytes) const;

private:
  /// How ranks of several stages lie, and on what.
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

/// Why `job`, on the mesh that is pinned if one is, does not go with the devices of `cluster`.
Status checkDevices(const Cluster &cluster, const Job &job, const MeshShape *pinned);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_STAGEDEVICES_H
